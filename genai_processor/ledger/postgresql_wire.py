# SPDX-License-Identifier: Apache-2.0
"""A connection to a PostgreSQL server on which nothing waits longer than it may.

By libpq directly, as psycopg wraps it: its cursors know no time limit on the client's side, and instrumentations turn what
goes through them into spans.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Final

from psycopg import OperationalError, pq

from genai_processor.ledger.pool import LostConnectionError

_TOO_LATE: Final = "it did not answer in time"
_GOOD: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_GONE: Final = ("08", "57P")  # classes of SQLSTATE: the connection is broken, or the server shuts down or starts up


class RefusedError(Exception):
    """The server answered with an error.

    Attributes:
        state: Its SQLSTATE.
    """

    def __init__(self, message: str, state: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.state = state


class Wire:
    """One connection. Not for several threads at once."""

    def __init__(self, connection: pq.abc.PGconn) -> None:
        self._connection = connection
        connection.nonblocking = 1
        connection.notice_handler = None

    @classmethod
    def connect(cls, conninfo: str, deadline: float) -> Wire:
        """Connect by a deadline (`time.monotonic`).

        Raises:
            LostConnectionError: It could not be done, or not in time.
        """
        try:
            connection = pq.PGconn.connect_start(conninfo.encode())
            status = connection.connect_poll() if connection.status != pq.ConnStatus.BAD else pq.PollingStatus.FAILED
            while status in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
                _wait(connection.socket, status == pq.PollingStatus.WRITING, deadline)
                status = connection.connect_poll()
        except OperationalError as error:
            raise LostConnectionError(str(error).strip()) from error
        if status != pq.PollingStatus.OK:
            raise LostConnectionError(connection.get_error_message().strip())
        return cls(connection)

    def query(self, statements: str, deadline: float) -> list[list[list[bytes | None]]]:
        """Run statements without parameters; returns the rows of each."""
        return self._run(lambda: self._connection.send_query(statements.encode()), deadline)

    def select(self, statement: str, values: Sequence[object], deadline: float) -> list[list[bytes | None]]:
        """Run a statement; returns its rows."""
        parameters = [None if value is None else str(value).encode() for value in values]
        return self._run(lambda: self._connection.send_query_params(statement.encode(), parameters), deadline)[-1]

    def prepare(self, name: str, statement: str, deadline: float) -> None:
        """Prepare a statement for `call`."""
        self._run(lambda: self._connection.send_prepare(name.encode(), statement.encode()), deadline)

    def call(self, name: bytes, parameters: Sequence[bytes], deadline: float) -> bytes:
        """Run a prepared statement that returns one value."""
        value = self._run(lambda: self._connection.send_query_prepared(name, parameters), deadline)[0][0][0]
        assert value is not None
        return value

    def close(self) -> None:
        """Close it."""
        self._connection.finish()

    def _run(self, send: Callable[[], None], deadline: float) -> list[list[list[bytes | None]]]:
        connection = self._connection
        answers: list[list[list[bytes | None]]] = []
        refused: RefusedError | None = None
        try:
            send()
            while connection.flush():
                _wait(connection.socket, True, deadline)
                connection.consume_input()
            while True:
                while connection.is_busy():
                    _wait(connection.socket, False, deadline)
                    connection.consume_input()
                result = connection.get_result()
                if result is None:
                    break
                if result.status in _GOOD:
                    columns = range(result.nfields)
                    answers.append([[result.get_value(row, at) for at in columns] for row in range(result.ntuples)])
                else:
                    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
                    refused = refused or RefusedError(result.get_error_message().strip(), state)
        except OperationalError as error:
            raise LostConnectionError(str(error).strip()) from error
        if refused is not None:
            if refused.state.startswith(_GONE) or connection.status == pq.ConnStatus.BAD:
                raise LostConnectionError(str(refused)) from refused
            raise refused
        return answers


def _wait(descriptor: int, writing: bool, deadline: float) -> None:
    """Wait until a socket can be read, or also written.

    Raises:
        LostConnectionError: It cannot by then.
    """
    left = deadline - time.monotonic()
    if left > 0:
        if hasattr(select, "poll"):  # not on Windows
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN | (select.POLLOUT if writing else 0))
            ready: object = waiting.poll(left * 1_000)
        else:
            ready = any(select.select([descriptor], [descriptor] if writing else [], [], left))
        if ready:
            return
    raise LostConnectionError(_TOO_LATE, timed_out=True)
