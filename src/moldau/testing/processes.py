"""Brokers as processes of their own, `moldau serve` with a properties file each, for behaviour that only a process
shows.

They can be killed, stopped and continued as a whole; their CPU and memory are the kernel's own figures.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from moldau.testing.ports import HOST, free_ports
from moldau.testing.proxy import Links

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
STORE_FILE = "metadata.sqlite"
INTERNAL = "INTERNAL"

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BrokerProcess:
    """One broker; its file, its data and its log outlive the process."""

    def __init__(self, directory: Path, properties: Mapping[str, str], name: str = "") -> None:
        """Make the broker; `directory` gets `NAME.properties` and `NAME.log`, and NAME is the broker's id unless
        given."""
        self.properties = dict(properties)
        self.program: tuple[str, ...] = ("-m", "moldau")
        """Arguments of Python before `serve`: a test may put a program of its own there."""
        name = name or f"broker-{properties['broker.id']}"
        self.file = directory / f"{name}.properties"
        self._log_file = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_line = ""

    @property
    def number(self) -> int:
        return int(self.properties["broker.id"])

    @property
    def data(self) -> Path:
        return Path(self.properties["log.dirs"])

    @property
    def bootstrap(self) -> str:
        """The address of the broker, also while it is down."""
        return self.properties["listeners"].partition(",")[0].rpartition("/")[2]

    @property
    def log(self) -> str:
        """The log of all its processes so far."""
        return self._log_file.read_text(errors="replace")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"broker {self.number} was never started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        if self.is_running:
            raise RuntimeError(f"broker {self.number} is running")
        self.file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.program, "serve", str(self.file)],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        if self._process is None or self._process.stdout is None:
            raise RuntimeError(f"broker {self.number} was never started")
        self.ready_line = self._process.stdout.readline().decode()
        if not re.search(r"is ready at", self.ready_line):
            code = self._process.wait(STOP_TIMEOUT_S)
            raise RuntimeError(f"broker {self.number} ended with {code}:\n{self.log[-3000:]}")

    def kill9(self) -> None:
        self._signal(signal.SIGKILL)
        self._reap()

    def sigstop(self) -> None:
        """Stop the whole process by SIGSTOP, for sure when this returns; the kernel still takes its connections."""
        self._signal(signal.SIGSTOP)
        if self.is_running:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def sigcont(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Stop the process cleanly; returns its exit code. A process that does not stop in time is killed, which is an
        error."""
        self._signal(signal.SIGTERM)
        try:
            return self._reap()
        except subprocess.TimeoutExpired:
            self.kill9()
            raise

    def cpu_s(self) -> float:
        """CPU seconds, user and system, of the present process and of its children that have ended."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15])) / _TICKS_PER_S

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * _PAGE_BYTES / 2**20

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    def _reap(self) -> int:
        if self._process is None:
            return 0
        code = self._process.wait(STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code


class ClusterOfProcesses:
    """Brokers with the ids 1, 2, 3 ... that share an embedded store or, with `zookeeper`, an ensemble.

    With `links` the brokers reach each other only through them: broker N is the place `str(N)`.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        *,
        zookeeper: Mapping[int, str] | str | None = None,
        links: Links | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.links = links
        self.brokers = {}
        for number in range(1, brokers + 1):
            settings = {
                **_listening(number, links),
                **_store(directory, zookeeper[number] if isinstance(zookeeper, Mapping) else zookeeper),
                "broker.id": str(number),
                "log.dirs": str(directory / f"data-{number}"),
                "log.flush.policy": "os",
                "log.dir.ballast.bytes": "0",
                "metrics.listener": "",
                "offsets.topic.replication.factor": str(min(3, brokers)),
                **(properties or {}),
            }
            self.brokers[number] = BrokerProcess(directory, settings)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def store_path(self) -> str:
        """The file of the embedded store."""
        return str(self.directory / STORE_FILE)

    def __getitem__(self, number: int) -> BrokerProcess:
        return self.brokers[number]

    def start(self) -> None:
        """Start all brokers at once, and wait for all."""
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def stop(self) -> dict[int, int]:
        """Stop all running brokers, one after the other; returns their exit codes."""
        return {number: broker.terminate() for number, broker in self.brokers.items() if broker.is_running}

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill9()

    def cpu_s(self) -> float:
        return sum(broker.cpu_s() for broker in self.brokers.values() if broker.is_running)

    def resident_mb(self) -> float:
        return sum(broker.resident_mb() for broker in self.brokers.values() if broker.is_running)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def processes(
    directory: Path,
    brokers: int = 3,
    properties: Mapping[str, str] | None = None,
    *,
    zookeeper: Mapping[int, str] | str | None = None,
    links: Links | None = None,
) -> Iterator[ClusterOfProcesses]:
    """A running cluster; its processes that are left are killed in the end."""
    with ClusterOfProcesses(directory, brokers, properties, zookeeper=zookeeper, links=links) as made:
        made.start()
        yield made


def _listening(number: int, links: Links | None) -> dict[str, str]:
    if links is None:
        (port,) = free_ports(1)
        return {"listeners": f"PLAINTEXT://{HOST}:{port}"}
    port, internal = free_ports(2)
    links.point(str(number), internal)
    proxied = links.open(str(number))
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},{INTERNAL}://{HOST}:{internal}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},{INTERNAL}://{HOST}:{proxied}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{INTERNAL}:PLAINTEXT",
        "inter.broker.listener.name": INTERNAL,
    }


def _store(directory: Path, zookeeper: str | None) -> dict[str, str]:
    if zookeeper is None:
        return {"metadata.store.path": str(directory / STORE_FILE)}
    return {"zookeeper.connect": zookeeper}
