# SPDX-License-Identifier: Apache-2.0
"""A payment service on the loopback: it pays the first refund and then loses its answer."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PaymentService:
    """Pays every refund that it is asked for, and answers the first request with 502, after the money has gone.

    Attributes:
        paid: Every refund that it paid, in order: the truth that no span knows.
    """

    def __init__(self) -> None:
        self.paid: list[dict[str, object]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.paid.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer_is_lost = len(service.paid) == 1
                self.send_response(502 if answer_is_lost else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> PaymentService:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
