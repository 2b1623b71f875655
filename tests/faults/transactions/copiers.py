"""The copiers of a schedule as processes: each name has one that counts, and perhaps zombies of itself.

A copier that ends is started again, as whoever runs a program would. What it says goes to a file, and is judged: one of
version 2 may be fenced by a newer process of its name, or when its transaction took too long, and for no other reason.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.clients.java_client import NEWEST, SHARED, classpath_of
from tests.faults.transactions.copier import TRANSACTION_TIMEOUT_MS
from tests.faults.workload import Client

BY_HAND, RDKAFKA, RDKAFKA_MEMBER = (
    (sys.executable, "-m", f"tests.faults.transactions.{module}")
    for module in ("copier", "rdkafka_copier", "rdkafka_member")
)
LOOK_S = 0.05
LATE_INIT_S = 20.0
"""So long may an InitProducerId that was not answered still reach a broker that hung, and fence whoever asked next."""


def java_member() -> tuple[str, ...]:
    """The command of a member of a group with Kafka's own client."""
    program = "TransactionCopier"
    return "java", "-Xmx128m", *SHARED, "-cp", classpath_of(f"kafka-{NEWEST}", program), program


class Copier(Client):
    """One name: its living process, which is watched and started again."""

    def __init__(
        self, name: str, command: Sequence[str], version: int, share: str, seed: int, bootstrap: str, logs: Path
    ) -> None:
        """`share`: the partitions of the input that are its own, or the group that it is a member of."""
        super().__init__(name)
        self.version = version
        self.commits = 0
        self.fences = 0
        self._command = command
        self._share = share
        self._seed = seed
        self._bootstrap = bootstrap
        self._log = (logs / f"copier-{name}.log").open("a")
        self._lock = threading.RLock()
        self._incarnation = 0
        self._process: subprocess.Popen[str] | None = None
        self._zombies: list[subprocess.Popen[str]] = []
        self._is_wanted = True
        self._unsure_until = 0.0

    # --- trouble

    def kill(self) -> None:
        """End the process as `kill -9` does, and start no other before `revive`."""
        with self._lock:
            self._is_wanted = False
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._unsure_until = time.monotonic() + LATE_INIT_S

    def revive(self) -> None:
        with self._lock:
            self._is_wanted = True

    def hang(self) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let the living process and all zombies go on."""
        with self._lock:
            for process in (*self._zombies, *([self._process] if self._process is not None else [])):
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGCONT)

    def replace(self) -> None:
        """Start another process of this name beside the one that hangs."""
        with self._lock:
            if self._process is not None:
                self._zombies.append(self._process)
                self._process = None

    # --- the thread

    def _work(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                if self._is_wanted and (self._process is None or self._process.poll() is not None):
                    self._start_process()
            self._stopping.wait(LOOK_S)
        self.wake()
        self.kill()
        for zombie in self._zombies:
            zombie.kill()
            zombie.wait()

    def _start_process(self) -> None:
        self._incarnation += 1
        arguments = [self.name, str(self._incarnation), str(self.version), str(self._seed), self._share]
        self._process = subprocess.Popen(
            [*self._command, *arguments, self._bootstrap],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self._process, self._incarnation), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str], incarnation: int) -> None:
        out: IO[str] | None = process.stdout
        if out is None:
            return
        for line in out:
            self._log.write(f"{time.time():.3f} {incarnation} {line}")
            self._log.flush()
            what, *rest = line.split(" ", 2)
            if what.startswith("committed"):
                self.commits += 1
            elif line.startswith("init unanswered"):
                self._unsure_until = time.monotonic() + LATE_INIT_S
            elif what == "fenced":
                self.fences += 1
                self._judge(process, rest[0], line.strip())
            elif what == "refused":
                self.complaints.append(f"{self.name}.{incarnation}: {line.strip()}")

    def _judge(self, process: subprocess.Popen[str], seconds: str, line: str) -> None:
        if self.version != 2 or process is not self._process or time.monotonic() < self._unsure_until:
            return
        if float(seconds) * 1000 < TRANSACTION_TIMEOUT_MS:
            self.complaints.append(f"{self.name} was fenced for no reason: {line}")
