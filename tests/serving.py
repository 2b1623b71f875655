"""`moldau serve` as a child process: for what only a real process shows (signals, memory, descriptors)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 30
UNWATCHED = ("--override", "metrics.listener=")
"""Arguments of `moldau serve` without metrics: of many brokers side by side one has the default port, and each of the
others says in its log that it has none."""


class Serving:
    """A running broker process."""

    def __init__(self, data: Path, *arguments: str, log_file: Path | None = None, under: Sequence[str] = ()) -> None:
        """`under` is a command that runs it: `prlimit` or `nsenter` with their options."""
        self._errors = log_file or data.with_name(data.name + ".log")
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*under, sys.executable, "-m", "moldau", "serve", "--data", str(data), *UNWATCHED, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.ready_line = self._first_line()
        address = re.search(r"PLAINTEXT://(\S+?):(\d+)(?:,|$)", self.ready_line)
        if address is None:
            self.process.wait(STOP_TIMEOUT_S)
            raise RuntimeError(f"moldau serve ended with {self.process.returncode}: {self.log[-2000:]}")
        self.host, self.port = address[1].strip("[]"), int(address[2])

    def _first_line(self) -> str:
        if self.process.stdout is None:
            raise RuntimeError("the process has no output")
        return self.process.stdout.readline().decode()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What the broker logged."""
        return self._errors.read_text()

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def serving(data: Path, *arguments: str) -> Iterator[Serving]:
    """A broker on a free port unless the arguments say otherwise."""
    where = () if "--port" in arguments else ("--port", "0")
    server = Serving(data, *where, *arguments)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
