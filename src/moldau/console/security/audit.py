"""The log of changes: JSON lines, one before a change is tried and one with its outcome.

The law: nothing is changed that could not be noted first.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moldau.console.failures import ConsoleError

NOTE_MAX = 2000
"""Characters of an outcome: the words of a failure may be long."""


class AuditLog:
    """Appends to a file; other programs may move it away, as it is opened anew each time."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Open the file. Raises ConsoleError where it cannot be written."""
        self._path = path
        self._now = now
        self._append("")

    def begin(self, user: str, address: str, what: str, of: Mapping[str, Any]) -> Callable[[str], None]:
        """Note that a change is tried; returns a function that notes the outcome."""
        entry = {"at": "", "user": user, "from": address, "change": what, **of}

        def note(outcome: str) -> None:
            said = {**entry, "at": self._now().isoformat(timespec="milliseconds"), "outcome": outcome[:NOTE_MAX]}
            self._append(json.dumps(said) + "\n")

        note("begun")
        return note

    def _append(self, line: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConsoleError(f"cannot write the audit log {self._path}: {error.strerror}", 503) from error
