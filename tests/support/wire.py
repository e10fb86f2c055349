# SPDX-License-Identifier: Apache-2.0
"""A wire between a client and a server, which a test cuts: before a request arrives, or before its answer does."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType


class Wire:
    """Passes on what is sent to its port, and counts the requests: what a client sends between two answers."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self.requests = 0
        self.cuts = 0
        self.silent = False  # takes what is sent, and says nothing
        self._cut: tuple[int, bool] | None = None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self, *, after_arrival: bool, at: int = 1) -> None:
        """Cut the connection of one of the next requests; it arrives, but its answer does not, or it does not arrive."""
        self._cut = (self.requests + at, after_arrival)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                self._open.append(client)
                threading.Thread(target=self._pass_on, args=[client], daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._to)) as server:
            self._open.append(server)
            asking = False
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 20)
                    if not data:
                        return
                    if ready is client:
                        self.requests += not asking
                        asking = True
                    cut = self._cut
                    hit = cut is not None and self.requests == cut[0] and asking and cut[1] is (ready is server)
                    if hit:
                        self._cut = None
                        self.cuts += 1
                        return
                    asking = asking and ready is client
                    if self.silent:
                        continue
                    (server if ready is client else client).sendall(data)
