"""Kafka's tools that run until they are told to stop: written to, and read from, line by line."""

import signal
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.clients.java_client import SHARED

STOP_TIMEOUT_S = 30.0


class RunningTool:
    """A main class of the jars in `classpath`, with everything that it has printed so far."""

    def __init__(self, classpath: str, main_class: str, *arguments: object) -> None:
        self.lines: list[str] = []
        self._main_class = main_class
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", *SHARED, "-cp", classpath, main_class, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def write(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the tool has no input")
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def wait(self, condition: Callable[[list[str]], bool], timeout_s: float) -> list[str]:
        """All lines, once `condition` holds of them."""
        with self._news:
            if not self._news.wait_for(lambda: condition(self.lines), timeout_s):
                shown = "\n".join(self.lines[-20:])
                raise TimeoutError(f"{self._main_class} printed nothing of the kind in {timeout_s:g} s:\n{shown}")
            return list(self.lines)

    def wait_for(self, line: str, timeout_s: float) -> None:
        self.wait(lambda lines: line in lines, timeout_s)

    def stop(self) -> list[str]:
        """All lines, after SIGTERM and its end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)
        self._reader.join()
        return self.lines

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
