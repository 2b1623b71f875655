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
from contextlib import contextmanager
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


@contextmanager
def running(*settings: str) -> Iterator[Server]:
    """A running server; `settings` as `name=value`, the later ones win."""
    directory = Path(tempfile.mkdtemp(prefix="moldau-postgres-"))
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(directory, user, user)
    data, log = directory / "data", directory / "log"
    server = None
    try:
        _run(user, "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        (port,) = free_ports(1)
        options = [word for setting in (*SETTINGS, *settings) for word in ("-c", setting)]
        with open(log, "wb") as output:
            server = subprocess.Popen(
                [binaries() / "postgres", "-D", data, "-p", str(port), *options],
                stdout=output,
                stderr=output,
                user=user,
                cwd="/",
            )
        _wait(Server(port), server, log)
        yield Server(port)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # ends the sessions, too
            server.wait()
        shutil.rmtree(directory)


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
