"""A PostgreSQL server of our own: Debian's binaries, a new data directory, a free port on loopback.

PostgreSQL refuses to run as root: then it runs as the user that Debian's package made. Nothing is synced to the disk,
since no test takes the power away.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from moldau.testing.ports import free_ports

READY_TIMEOUT_S = 60.0
SETTINGS = (
    *("wal_level=logical", "max_wal_senders=4", "max_replication_slots=16", "fsync=off"),
    *("listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=16MB", "max_connections=30"),
)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `url` is that of its superuser."""

    port: int

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, user: str, database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as database:
            for statement in statements:
                database.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as database:
            return database.execute(query).fetchall()


def binaries() -> Path:
    """The directory of the newest version's binaries."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    if not found:
        raise FileNotFoundError("PostgreSQL is not installed: run `make tools`")
    return found[-1].parent


class ServerProcess:
    """A server that may be stopped, killed and started again; its data and its port stay until `remove`."""

    def __init__(self, *settings: str) -> None:
        """Make the data directory; `settings` as `name=value`, the later ones win."""
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-postgres-"))
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._directory, self._user, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        _run(self._user, "initdb", "-D", str(self.data), *options)
        (port,) = free_ports(1)
        self.server = Server(port)
        self._options = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]

    @property
    def data(self) -> Path:
        return self._directory / "data"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the server, and wait until it serves."""
        log = self._directory / "log"
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [binaries() / "postgres", "-D", self.data, "-p", str(self.server.port), *self._options],
                stdout=output,
                stderr=output,
                user=self._user,
                cwd="/",
                start_new_session=True,
            )
        _wait(self.server, self._process, log)

    def stop(self) -> None:
        """Stop the server, and end the sessions, too."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def kill9(self) -> None:
        """Kill the server, with the processes of its sessions."""
        if self._process is not None:
            for pid in (*_children(self._process.pid), self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory)


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    """A running server; `settings` as `name=value`, the later ones win."""
    process = ServerProcess(*settings)
    try:
        process.start()
        yield process.server
    finally:
        process.remove()


def _children(pid: int) -> list[int]:
    """The processes of the server's sessions: each is in a session of its own, so that no signal reaches them all."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _run(user: str | None, program: str, *arguments: str) -> None:
    done = subprocess.run([binaries() / program, *arguments], user=user, cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr}")


def _wait(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            psycopg.connect(server.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"PostgreSQL does not serve: {log.read_text()}")
