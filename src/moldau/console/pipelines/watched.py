"""Pipelines whose files the console was started with: how far their runs are, and stopping and starting them.

The law: which files these are is said on the command line alone, and nothing that a browser sends becomes a part of a
command. A pipeline that is started here is a process of its own, and goes on when the console ends.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.console.failures import ConsoleError

if TYPE_CHECKING:
    from moldau.pipelines.file.spec import PipelineSpec

STOP_S = 15.0
RESTART_S = 60.0
"""Time for the batch at hand to end before a restart is given up."""
START_S = 20.0
"""Time for a run to begin, or to say why it does not."""
LOOK_S = 0.1
WORDS_MAX = 2000
LOG = "console-run.log"
INSTALL = "pip install 'moldau[pipelines]'"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as its file and its storage say."""

    name: str
    file: Path
    spec: "PipelineSpec | None"
    """None: the file is not sound."""
    status: dict[str, Any]
    problem: str = ""


@dataclass(slots=True)
class _Read:
    """A file that was read, and when it had been changed last."""

    changed: float
    spec: "PipelineSpec | None"
    names_cluster: bool
    problem: str


class _NotInTime(ConsoleError):
    """Error: a run was asked to end, and has not yet."""


class Pipelines:
    """Pipelines that were named; methods wait for files and processes, and are called in threads."""

    def __init__(self, files: Sequence[Path], bootstrap: str) -> None:
        self._files = files
        self._bootstrap = bootstrap
        self._read: dict[Path, _Read] = {}
        self._started: dict[Path, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def found(self) -> list[Pipeline]:
        """All pipelines as they are now."""
        return [self._pipeline(file) for file in self._files]

    def named(self, name: str) -> Pipeline:
        """The pipeline of this name. Raises ConsoleError."""
        found = next((each for each in self.found() if each.name == name), None)
        if found is None:
            raise ConsoleError(f"the console was not told of a pipeline {name[:80]!r}", 404)
        return found

    def _pipeline(self, file: Path) -> Pipeline:
        read = self._looked_at(file)
        started = self._started.get(file)
        if started is not None:
            started.poll()  # a process that has ended goes away when somebody asks for it
        if read.spec is None:
            return Pipeline(file.stem, file, None, {"state": "not sound", "queries": []}, read.problem)
        from moldau.pipelines.run.status import found

        try:
            return Pipeline(read.spec.name, file, read.spec, found(read.spec))
        except (OSError, ValueError, KeyError) as error:
            return Pipeline(read.spec.name, file, read.spec, {"state": "unknown", "queries": []}, str(error))

    def _looked_at(self, file: Path) -> _Read:
        """The file, read again if it has changed."""
        try:
            changed = file.stat().st_mtime
        except OSError as error:
            return _Read(0.0, None, False, f"{file}: {error.strerror}")
        with self._lock:
            known = self._read.get(file)
            if known is None or known.changed != changed:
                known = self._read[file] = _read(file, changed, self._bootstrap)
            return known

    # --- runs

    def stop(self, name: str) -> str:
        """Stop a run after the batch at hand; returns what was done."""
        try:
            return f"{name} is stopped" if self._stopped(name, STOP_S) else f"{name} was not running"
        except _NotInTime:
            return f"{name} is asked to stop: it ends after the batch at hand"

    def _stopped(self, name: str, timeout_s: float) -> bool:
        """Whether there was a run, and it has ended. Raises ConsoleError."""
        from moldau.pipelines.run.stopping import NotInTime, StopFailed, stop
        from moldau.pipelines.run.storage import Storage

        spec = self._sound(name)
        try:
            return stop(name, Storage(spec.storage), timeout_s)
        except NotInTime as error:
            raise _NotInTime(str(error), 409) from error
        except StopFailed as error:
            raise ConsoleError(str(error), 409) from error

    def start(self, name: str) -> str:
        """Start a run, on from where the last one stopped; returns what was done."""
        from moldau.pipelines.run.storage import Storage

        storage = Storage(self._sound(name).storage)
        if storage.runner() is not None:
            raise ConsoleError(f"{name} is running already", 409)
        process = self._launched(self.named(name).file, storage.path)
        deadline = time.monotonic() + START_S
        while storage.runner() != process.pid:
            if process.poll() is not None:
                raise ConsoleError(f"{name} did not start: {_last_words(storage.path / LOG)}", 409)
            if time.monotonic() > deadline:
                return f"{name} is being started"
            time.sleep(LOOK_S)
        return f"{name} is started"

    def restart(self, name: str) -> str:
        """Stop a run if there is one, wait for its end, and start another."""
        self._stopped(name, RESTART_S)
        return self.start(name).replace("started", "restarted")

    def _launched(self, file: Path, storage: Path) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "moldau", "pipeline", "run", str(file)]
        if not self._looked_at(file).names_cluster:
            command += ["--bootstrap-server", self._bootstrap]
        try:
            storage.mkdir(parents=True, exist_ok=True)
            with open(os.open(storage / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            raise ConsoleError(f"{file} cannot be started: {error.strerror}", 409) from error
        self._started[file] = process
        return process

    def _sound(self, name: str) -> "PipelineSpec":
        pipeline = self.named(name)
        if pipeline.spec is None:
            raise ConsoleError(f"{pipeline.file} is not sound: {pipeline.problem}", 409)
        return pipeline.spec


def _read(file: Path, changed: float, bootstrap: str) -> _Read:
    try:
        from moldau.pipelines.file.check import check_names
        from moldau.pipelines.file.files import load, read
        from moldau.pipelines.file.problems import PipelineError
    except ImportError as error:
        return _Read(changed, None, False, f"pipelines need the package {error.name!r}: {INSTALL}")
    try:
        names_cluster = "bootstrap" in read(file).given
        spec = load(file, None if names_cluster else bootstrap)
        problems = list(check_names(spec))
        if problems:
            raise PipelineError(problems)
        return _Read(changed, spec, names_cluster, "")
    except PipelineError as error:
        return _Read(changed, None, False, "; ".join(str(each) for each in error.problems)[:WORDS_MAX])
    except ImportError as error:
        return _Read(changed, None, False, f"pipelines need the package {error.name!r}: {INSTALL}")
    except Exception as error:  # a Python file may raise anything
        return _Read(changed, None, False, f"{file}: {error}"[:WORDS_MAX])


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return (lines[-1] if lines else "it said nothing")[:WORDS_MAX]
