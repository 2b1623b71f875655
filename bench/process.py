"""A server as a child process: started, timed until it answers, its CPU and memory read from /proc, stopped."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

from moldau.testing.ports import free_ports

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

# ApiVersions (key 18) version 0, correlation id 1, no client id: the one request that every broker answers first.
_API_VERSIONS = Struct(">ihhih").pack(10, 18, 0, 1, -1)
_CPU_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ServerDied(Exception):
    """The server ended, or never answered."""


class Server:
    """A broker in a process group of its own, with a temporary directory that goes when it stops."""

    def __init__(self, name: str, directory: Path, port: int, command: Sequence[str]) -> None:
        self.name = name
        self.directory = directory
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        begun = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self._wait_until_it_answers(begun + START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - begun

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.directory / "output.log"

    @property
    def data(self) -> Path:
        """Where the server keeps its files."""
        return self.directory / "data"

    def _wait_until_it_answers(self, deadline: float) -> None:
        while not answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerDied(f"{self.name} did not come up:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.002)

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        """The process and its children."""
        return list(_tree(self._process.pid))

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of the process and its children so far."""
        return cpu_s_of(self._process.pid)

    def resident_mb(self) -> float:
        """Resident memory of the process and its children."""
        return resident_mb_of(self._process.pid)

    def stop(self) -> None:
        """Ask, then insist; and remove the files."""
        _signal_group(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start(name: str, command: Callable[[Path, int], Sequence[str]]) -> Server:
    """Start what `command(directory, port)` names, in a new temporary directory and on a free port."""
    directory = Path(tempfile.mkdtemp(prefix=f"{name.split()[0]}-"))
    (port,) = free_ports(1)
    return Server(name, directory, port, command(directory, port))


def answers(port: int) -> bool:
    """Whether a broker serves requests there: an open port alone does not say so (Kafka binds early)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_TIMEOUT_S) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(8)) > 0
    except OSError:
        return False


def cpu_s_of(pid: int) -> float:
    """CPU seconds, user and system, of a process and its children so far."""
    return sum(map(_cpu_ticks, _tree(pid))) / _CPU_TICKS_PER_S


def resident_mb_of(pid: int) -> float:
    """Resident memory of a process and its children."""
    return sum(map(_resident_kib, _tree(pid))) / 1024


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _tree(pid: int) -> list[int]:
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    except FileNotFoundError:
        return []
    return [pid, *(grandchild for child in children for grandchild in _tree(child))]


def _children(task: Path) -> list[str]:
    try:
        return (task / "children").read_text().split()
    except FileNotFoundError:  # the thread has just ended
        return []


def _cpu_ticks(pid: int) -> int:
    """utime, stime and those of children that have ended (fields 14 to 17 of /proc/PID/stat)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return sum(map(int, after_name[11:15]))


def _resident_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
