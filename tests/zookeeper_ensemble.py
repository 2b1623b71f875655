"""A real ZooKeeper ensemble of three on loopback, whose members can be killed, stopped and started again one by one."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from kazoo.protocol.serialization import Close, Connect  # type: ignore[import-untyped]  # no type information

from moldau.testing.ports import free_ports

VERSION = "3.9.5"
JARS = Path(__file__).parents[1] / ".tools" / f"zookeeper-{VERSION}"
READY_TIMEOUT_S = 60.0
TICK_MS = 200
"""Short, so that the sessions of tests may be: an ensemble grants at least two ticks."""
SESSION_TIMEOUT_MAX_MS = 60_000
"""Longer than the ensemble takes to start again, on a busy machine too."""


class Member:
    """One server process; its port and its data outlive it."""

    def __init__(self, number: int, directory: Path, port: int) -> None:
        self.number = number
        self.port = port
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def mode(self) -> str | None:
        """`leader` or `follower`; None while it does not serve."""
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), 1.0))
                connection.sendall(b"srvr")
                answer = stack.enter_context(connection.makefile("rb")).read().decode()
            except OSError:
                return None
        return next((line[6:] for line in answer.splitlines() if line.startswith("Mode: ")), None)

    def start(self) -> None:
        if self.running:
            return
        log: IO[bytes]
        with open(self._directory / "output", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xms32m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", f"{JARS}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
                    str(self._directory / "zoo.cfg"),
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """`kill -9`."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """The process hangs, the kernel still takes its connections."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self.running:
            os.kill(self._process.pid, number)


class Ensemble:
    """Three members; `wait` returns when all of them serve."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(9)
        servers = [f"server.{n + 1}=127.0.0.1:{ports[3 + n]}:{ports[6 + n]}" for n in range(3)]
        self.members = [Member(n + 1, directory / str(n + 1), ports[n]) for n in range(3)]
        for member in self.members:
            _configure(directory / str(member.number), member, servers)

    @property
    def connect(self) -> str:
        """As `zookeeper.connect` takes it, without a chroot."""
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    @property
    def leader(self) -> Member:
        """Asked again where nobody says so: on a busy machine it may not answer in time."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            for member in self.members:
                if member.mode == "leader":
                    return member
        raise TimeoutError("the ensemble has no leader")

    def start(self) -> None:
        for member in self.members:
            member.start()

    def heal(self) -> None:
        """Whatever was done to the members: all of them serve again."""
        for member in self.members:
            member.resume()
        self.start()
        self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not all(member.mode for member in self.members):
            if time.monotonic() > deadline:
                raise TimeoutError("the ensemble does not serve")
            time.sleep(0.02)

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def expire(self, session_id: int, password: bytes) -> None:
        """End a session that is not ours: who has its password may. Its owner may take it back first: try again."""
        while not _close_session(self.leader.port, session_id, password):
            pass


def _close_session(port: int, session_id: int, password: bytes) -> bool:
    """Whether the ensemble does not know the session any more."""
    connect = Connect(0, 0, 10_000, session_id, password, False).serialize()
    with socket.create_connection(("127.0.0.1", port), 10.0) as connection, connection.makefile("rb") as answers:
        connection.sendall(_frame(connect) + _frame(struct.pack("!ii", 1, Close.type)))
        granted, closed = _read_frame(answers), _read_frame(answers)
    if granted and struct.unpack_from("!ii", granted)[1] <= 0:
        return True
    return bool(closed) and struct.unpack_from("!iqi", closed)[2] == 0


def _frame(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def _read_frame(answers: IO[bytes]) -> bytes:
    """Nothing if the connection was closed instead."""
    try:
        return answers.read(int.from_bytes(answers.read(4), "big"))
    except ConnectionResetError:
        return b""


def _configure(directory: Path, member: Member, servers: list[str]) -> None:
    directory.mkdir()
    (directory / "myid").write_text(str(member.number))
    lines = [
        f"tickTime={TICK_MS}",
        "initLimit=50",
        "syncLimit=25",
        f"dataDir={directory}",
        "clientPortAddress=127.0.0.1",
        f"clientPort={member.port}",
        f"maxSessionTimeout={SESSION_TIMEOUT_MAX_MS}",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr",
        "forceSync=no",  # a test does not outlive a power cut
        *servers,
    ]
    (directory / "zoo.cfg").write_text("\n".join(lines))


@contextmanager
def running_ensemble() -> Iterator[Ensemble]:
    """An ensemble that serves; it is killed and forgotten afterwards."""
    if not (JARS / ".fetched").exists():
        raise RuntimeError(f"ZooKeeper {VERSION} is not in .tools: run `make tools` once (it needs Java 17 and Maven)")
    directory = Path(tempfile.mkdtemp(prefix="moldau-zookeeper-"))
    ensemble = Ensemble(directory)
    try:
        ensemble.start()
        ensemble.wait()
        yield ensemble
    finally:
        ensemble.kill()
        shutil.rmtree(directory, ignore_errors=True)
