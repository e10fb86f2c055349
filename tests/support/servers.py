# SPDX-License-Identifier: Apache-2.0
"""Real servers for tests: Redis and PostgreSQL, each on a free port and in a folder of its own, to be stopped and killed.

Where the programs are missing they are installed from the distribution's packages, if that is allowed; if not, the test
fails and says which packages it wants. It is never skipped: a ledger that was not tried on its server was not tried.
"""

from __future__ import annotations

import atexit
import glob
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60
PASSWORD = "correct-horse"
_POSTGRESQL_FOLDERS = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"


class ServerMissing(Exception):
    """A program is not there, and may not be installed."""


def find_program(name: str, path: str | None = None, folders: Sequence[str] = _POSTGRESQL_FOLDERS) -> str | None:
    """Where a program is: on the path, or in the folders where distributions keep the versions of PostgreSQL."""
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    versions = [folder for pattern in folders for folder in glob.glob(pattern) if os.access(f"{folder}/{name}", os.X_OK)]
    newest = max(versions, key=lambda folder: [int(digits) for digits in re.findall(r"\d+", folder)], default=None)
    return None if newest is None else f"{newest}/{name}"


def program(name: str, package: str, install: Callable[[str], str] | None = None) -> str:
    """Where a program is, after its package was installed if need be.

    Raises:
        ServerMissing: It is not there.
    """
    found = find_program(name)
    why = "" if found is not None else (install or _install)(package)
    found = found or find_program(name)
    if found is None:
        raise ServerMissing(
            f"these tests need {name}, which is not here; install it, on Debian and Ubuntu with: "
            f"apt-get install redis-server postgresql (tried {package}: {why})"
        )
    return found


def _install(package: str) -> str:
    """Install a package of the distribution, without starting what it would start; returns what went wrong."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "only root may, with apt-get"
    policy = Path("/usr/sbin/policy-rc.d")
    made = not policy.exists()
    if made:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", package]):
            done = subprocess.run(
                command, env=quiet, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600
            )
        return "" if done.returncode == 0 else done.stderr.strip()[-300:]
    finally:
        if made:
            policy.unlink()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server on a port of its own; after `stop` or `kill`, `start` has it go on with the same data."""

    def __init__(self, options: Mapping[str, str], user: str | None = None) -> None:
        self.options = dict(options)
        self.folder = Path(tempfile.mkdtemp(prefix="genai-ledger-"))
        self.port = free_port()
        self._user: dict[str, Any] = {}
        if user is not None:
            who = pwd.getpwnam(user)
            os.chown(self.folder, who.pw_uid, who.pw_gid)
            self._user = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start, and wait until it answers. One that was killed may have children that have to go first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn(self.command())
                self._watch(self._process.pid)
            if self.is_ready():
                return
            time.sleep(0.02)
        log = (self.folder / "log").read_text(errors="replace")[-2_000:]
        self.remove()
        raise ServerMissing(f"{self.command()[0]} did not start within {PATIENCE_SECONDS} s:\n{log}")

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **self._user,
            )

    def _watch(self, pid: int) -> None:
        """Have the server killed, and its folder removed, when this process ends, in whatever way it does."""
        self._unwatch()
        script = 'read _ || { kill -9 "$1" 2>/dev/null; sleep 1; rm -rf "$2"; }'
        command = ["sh", "-c", script, "sh", str(pid), str(self.folder)]
        quiet = subprocess.DEVNULL
        self._watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)

    def _unwatch(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.communicate(b"\n")

    def stop(self) -> None:
        """Let it end in good order, but not wait for its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Have it not answer any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        self._unwatch()
        if process is not None and process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def remove(self) -> None:
        """End it, and remove its folder."""
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)


class RedisServer(Server):
    """A Redis server; by default every change is on the disk before it is answered."""

    def __init__(self, **options: str) -> None:
        super().__init__({"appendonly": "yes", "appendfsync": "always", "save": "", **options})
        self._program = program("redis-server", "redis-server")

    def command(self) -> list[str]:
        options = [part for name, value in self.options.items() for part in (f"--{name}", value)]
        return [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *options]

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def url(self, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.port}/0"


class PostgreSQLServer(Server):
    """A PostgreSQL server, which refuses to run as root; its password is `PASSWORD`."""

    def __init__(self, **options: str) -> None:
        self._program = program("postgres", "postgresql")
        super().__init__({"max_connections": "200", **options}, _other_user())
        (self.folder / "password").write_text(PASSWORD)
        os.chmod(self.folder / "password", 0o644)
        initdb = find_program("initdb") or str(Path(os.path.realpath(self._program)).with_name("initdb"))
        access = ["-U", "ann", "--pwfile", f"{self.folder}/password", "-A", "scram-sha-256"]
        made = self._spawn([initdb, "-D", f"{self.folder}/data", *access, "-E", "UTF8", "--no-sync"])
        assert made.wait(PATIENCE_SECONDS) == 0, (self.folder / "log").read_text()

    def command(self) -> list[str]:
        options = [part for name, value in self.options.items() for part in ("-c", f"{name}={value}")]
        place = ["-D", f"{self.folder}/data", "-p", str(self.port), "-k", str(self.folder)]
        return [self._program, *place, "-c", "listen_addresses=127.0.0.1", *options]

    def is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, port: int | None = None) -> str:
        return f"postgresql://ann:{PASSWORD}@127.0.0.1:{port or self.port}/postgres"


def _other_user() -> str | None:
    """Whom to run as: root lends itself to somebody else."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)
