# SPDX-License-Identifier: Apache-2.0
"""Connections to a Redis server, and whether it is configured to keep what it is told."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import redis
from redis import exceptions

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.pool import LostConnectionError
from genai_processor.ledger.redis_script import LAYOUT
from genai_processor.ledger.server_clock import ServerClock, passed_ns
from genai_processor.ledger.shared_store import lost

_log = logging.getLogger(__name__)
_TOO_LATE: Final = "it did not answer in time"


class RedisConnection:
    """One connection. It bypasses the client on top, which instrumentations turn into spans, and which sends again."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection  # a `redis.Connection`, whose methods have no types

    def ask(self, command: Sequence[Any], deadline: float) -> Any:
        """Send a command and return its answer.

        Args:
            command: Its words.
            deadline: By when (`time.monotonic`) the answer has to be there.

        Raises:
            LostConnectionError: The connection broke, or the answer did not come in time.
            redis.ResponseError: The server refuses the command.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise LostConnectionError(_TOO_LATE, timed_out=True)
        try:
            self._connection._sock.settimeout(left)
            self._connection.send_command(*command, check_health=False)
            return self._connection.read_response()
        except (exceptions.TimeoutError, TimeoutError) as error:
            raise LostConnectionError(_TOO_LATE, timed_out=True) from error
        except (exceptions.BusyLoadingError, exceptions.ConnectionError, OSError) as error:
            raise LostConnectionError(str(error)) from error

    def close(self) -> None:
        """Close it."""
        self._connection.disconnect()


class RedisServer:
    """Connects to a server, and says once what is wrong with its configuration.

    Args:
        pool: Where connections are made; it keeps none.
        name: What messages call the ledger.
        prefix: Of all keys.
        create: Make the ledger if the server has none.
        clock: Told the server's time.

    Attributes:
        ledger: The random name of the ledger that was found first; "" before.
    """

    def __init__(
        self,
        pool: redis.ConnectionPool,
        name: str,
        prefix: str,
        *,
        create: bool,
        clock: ServerClock,
    ) -> None:
        self._kind, self._options = pool.connection_class, pool.connection_kwargs
        self._name = name
        self._prefix = prefix
        self._create = create
        self._clock = clock
        self._checked = False
        self.ledger = ""

    def connect(self, deadline: float) -> RedisConnection:
        """Connect, and see which version of the layout there is.

        Raises:
            LostConnectionError: There is no connection in time.
            LedgerUnavailableError: The server lets nobody in, or has a ledger of a later version, or none, or not the one
                that it had before, or forgets when it is full.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise LostConnectionError(_TOO_LATE, timed_out=True)
        timeouts = {"socket_timeout": left, "socket_connect_timeout": left}
        connection = self._kind(**{**self._options, **timeouts})
        wrapped = RedisConnection(connection)
        try:
            connection.connect()
            self._look_around(wrapped, deadline)
        except (exceptions.TimeoutError, TimeoutError) as error:
            wrapped.close()
            raise LostConnectionError(_TOO_LATE, timed_out=True) from error
        except exceptions.AuthenticationError as error:
            wrapped.close()
            raise LedgerUnavailableError(f"the ledger {self._name} lets nobody in by this name and password") from error
        except (exceptions.ConnectionError, OSError) as error:
            wrapped.close()
            raise LostConnectionError(str(error)) from error
        except exceptions.ResponseError as error:
            wrapped.close()
            if str(error).startswith("MOVED"):
                raise LedgerUnavailableError(
                    f"the ledger {self._name} is a cluster of several nodes, which is not supported; name a single server"
                ) from error
            raise
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _look_around(self, connection: RedisConnection, deadline: float) -> None:
        meta = f"{self._prefix}meta"
        sent = passed_ns()
        seconds, micros = connection.ask(["TIME"], deadline)
        self._clock.sample(int(seconds) * 10**9 + int(micros) * 1_000, sent, passed_ns())
        if not self._checked:
            doubts = self._doubts(connection, deadline)
            self._checked = True
            for warning in doubts:
                _log.warning("The ledger %s may lose what it is told: %s", self._name, warning)
        version, ledger = connection.ask(["HMGET", meta, "layout", "ledger"], deadline)
        if version is None and self.ledger:
            raise lost(self._name)
        if version is None and not self._create:
            raise LedgerUnavailableError(f"no ledger at {self._name}: its keys would begin with {self._prefix}")
        if version is None or ledger is None:
            connection.ask(["HSETNX", meta, "layout", LAYOUT], deadline)
            connection.ask(["HSETNX", meta, "ledger", random_id()], deadline)
            version, ledger = connection.ask(["HMGET", meta, "layout", "ledger"], deadline)
        if int(version) > LAYOUT:
            raise LedgerUnavailableError(
                f"the ledger {self._name} has layout {int(version)}, and this version of genai_processor knows {LAYOUT}: "
                "it was made by a later version; upgrade this one"
            )
        self.ledger = self.ledger or ledger.decode()
        if ledger.decode() != self.ledger:
            raise lost(self._name)

    def _doubts(self, connection: RedisConnection, deadline: float) -> list[str]:
        doubts: list[str] = []
        try:
            if connection.ask(["ROLE"], deadline)[0] != b"master":
                doubts.append("the server is a replica; name its master in the URL")
        except exceptions.ResponseError:
            doubts.append("ROLE is not allowed here, so nobody can tell whether the server is a replica")
        try:
            found = [
                connection.ask(["CONFIG", "GET", name], deadline)
                for name in ("appendonly", "appendfsync", "maxmemory-policy", "maxmemory")
            ]
        except exceptions.ResponseError:
            doubts.append(
                "CONFIG is not allowed here, so this cannot be checked; see to it that the server has appendonly yes, "
                "appendfsync always and maxmemory-policy noeviction"
            )
            return doubts
        append_only, fsync, policy, limit = (answer[1].decode() if len(answer) > 1 else "" for answer in found)
        if append_only != "yes":
            doubts.append(
                f"appendonly is {append_only!r}, so a restart loses all since the last snapshot, and a call may run twice; "
                "set appendonly yes"
            )
        elif fsync != "always":
            doubts.append(
                f"appendfsync is {fsync!r}, so a crash of the machine loses the last moments (a second, if it is "
                "'everysec'), and a call that ran in them may run twice; set appendfsync always"
            )
        if policy.startswith("allkeys") and limit not in ("", "0"):
            raise LedgerUnavailableError(
                f"the ledger {self._name} is on a server with maxmemory-policy {policy!r} and maxmemory {limit}: when "
                "that is full, it forgets calls without a word, and they run again; set maxmemory-policy noeviction"
            )
        if policy.startswith("allkeys"):
            doubts.append(
                f"maxmemory-policy is {policy!r}, which drops any key when memory is full, also of what waits for a "
                "person; set maxmemory-policy noeviction"
            )
        return doubts
