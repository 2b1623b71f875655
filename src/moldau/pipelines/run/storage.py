"""The directory of a pipeline: checkpoints, fixed schemas, replays, the status of a run, and its lock.

The law: one run at a time, as two would write one checkpoint. The lock is the system's (flock), so it goes with its
process however that ends; the text in the file only says whose it is.
"""

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from moldau.pipelines.secrets import without_secrets

PROBE_S = 0.5
"""Seconds that a run tries for its lock: another process that looks whether a run is there holds it for a moment."""
ORPHAN_WAIT_S = 20.0
"""Seconds that a run waits for the Java of one that was killed; it ends by itself when it sees its driver gone."""


class Busy(Exception):
    """Error: another run of the pipeline goes on."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"the pipeline is running already (process {pid or 'unknown'})")
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Storage:
    """The directory of a pipeline; `path` need not exist yet."""

    path: Path

    @property
    def schemas(self) -> Path:
        return self.path / "schemas"

    @property
    def replays(self) -> Path:
        return self.path / "replays"

    def checkpoint(self, query: str) -> Path:
        """The checkpoint of a sink, or of a source's dead letters."""
        return self.path / "checkpoints" / query

    def checkpoints(self) -> list[str]:
        """The queries that have a checkpoint."""
        parent = self.path / "checkpoints"
        return sorted(entry.name for entry in parent.iterdir()) if parent.is_dir() else []

    # --- one run at a time

    @contextmanager
    def lock(self) -> "Iterator[RunLock]":
        """Hold the lock of the run inside the block. Raises Busy."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "run.lock").open("a+") as file:
            deadline = time.monotonic() + PROBE_S
            while not _locked(file, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise Busy(_noted(file).get("pid"))
                time.sleep(PROBE_S / 10)
            lock = RunLock(file, _noted(file).get("java"))
            lock.note(None)
            self._stop.unlink(missing_ok=True)  # what was asked of the run before
            try:
                yield lock
            finally:
                lock.clear()

    def runner(self) -> int | None:
        """The process of the run that goes on; 0 if it has not said yet, None if there is none."""
        try:
            with (self.path / "run.lock").open("r") as file:
                return None if _locked(file, fcntl.LOCK_SH) else int(_noted(file).get("pid") or 0)
        except FileNotFoundError:
            return None

    def is_shared(self) -> bool:
        """Whether the process of the run has other pipelines, too."""
        try:
            with (self.path / "run.lock").open("r") as file:
                return bool(_noted(file).get("shared"))
        except FileNotFoundError:
            return False

    def ask_stop(self) -> None:
        """Ask the run to stop after the batch at hand, and no other pipeline of its process."""
        self._stop.touch()

    def stop_asked(self) -> bool:
        return self._stop.exists()

    @property
    def _stop(self) -> Path:
        return self.path / "stop"

    # --- what the run says of itself

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Write the status as a whole or not at all: `status` may read at any time."""
        self.path.mkdir(parents=True, exist_ok=True)
        written = self.path / f"status.json.{os.getpid()}"
        with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(without_secrets(json.dumps(status, indent=1)))
        written.replace(self.path / "status.json")

    def read_status(self) -> dict[str, Any] | None:
        try:
            status: dict[str, Any] = json.loads((self.path / "status.json").read_text())
        except FileNotFoundError:
            return None
        return status

    # --- beginning anew

    def forget(self, query: str) -> None:
        """Remove a checkpoint; it is renamed first, so that a half-removed one is never taken for whole."""
        checkpoint = self.checkpoint(query)
        if checkpoint.exists():
            aside = self.path / f"removing.{uuid.uuid4().hex}"
            checkpoint.rename(aside)
            shutil.rmtree(aside)

    def forget_schemas(self) -> None:
        """Remove the schemas that were found, so that the next run finds them anew."""
        for file in self.schemas.glob("*.json"):
            file.unlink()


class RunLock:
    """Lock that a run holds."""

    def __init__(self, file: TextIO, orphan: int | None) -> None:
        self._file = file
        self._orphan = orphan

    def note(self, java: int | None, shared: bool = False) -> None:
        """Write the owner: this process, its Java once there is one, and whether the two have other pipelines too."""
        self._write(json.dumps({"pid": os.getpid(), "java": java, "shared": shared}))

    def clear(self) -> None:
        self._write("")

    def await_orphan(self, say: Callable[[str], None]) -> None:
        """Wait for the Java of a killed run, which may still finish a batch; two at one checkpoint would make one of
        them fail."""
        deadline = time.monotonic() + ORPHAN_WAIT_S
        if self._orphan and _lives(self._orphan):
            say(f"waiting for Spark of the run before, which was killed (process {self._orphan})")
        while self._orphan and _lives(self._orphan) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _write(self, text: str) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()


def _locked(file: TextIO, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _noted(file: TextIO) -> dict[str, Any]:
    file.seek(0)
    try:
        noted = json.loads(file.read() or "{}")
    except json.JSONDecodeError:
        return {}
    return noted if isinstance(noted, dict) else {}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
