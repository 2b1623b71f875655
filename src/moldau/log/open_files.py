"""The log files that are open, within a bound: the files that grew least are closed first.

A segment opens its file when it needs it and keeps it; this room decides when it is closed. A reader that still sends
from a file keeps it open. Nothing is done per append: the growth of a segment since the last look counts.
"""

import contextlib
import threading
from typing import Protocol
from weakref import WeakKeyDictionary

from moldau.core.descriptors import Descriptors

KEPT = 0.75
"""The share of open files that stays open when some must be closed."""


class OpenSegment(Protocol):
    """A segment whose file is open."""

    size: int

    def fileno(self) -> int:
        """The descriptor of the segment's file; -1 if it has none."""
        ...

    def park(self) -> None:
        """Close the file until it is needed again. Raises OSError if that fails."""
        ...


class OpenFiles:
    """The open segments of all logs of a broker, with their sizes at the last look."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._sizes: WeakKeyDictionary[OpenSegment, int] = WeakKeyDictionary()
        self._owner: int | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    def belong_to_this_thread(self) -> None:
        """Let only this thread append and close files from now on."""
        self._owner = threading.get_ident()

    def opened(self, segment: OpenSegment) -> None:
        """Note that a segment has opened its file."""
        self._sizes[segment] = segment.size
        if len(self._sizes) > self._descriptors.files_max or segment.fileno() >= self._descriptors.file_max:
            self.shed(segment)

    def closed(self, segment: OpenSegment) -> None:
        self._sizes.pop(segment, None)

    def shed(self, kept: OpenSegment | None = None) -> bool:
        """Close some files, idle ones first, but not that of `kept`; returns whether any was closed."""
        if self._owner not in (None, threading.get_ident()):
            return False
        before = len(self._sizes)
        goal = int(before * KEPT)
        for segment, _ in sorted(self._sizes.items(), key=_growth):
            if len(self._sizes) > goal and segment is not kept:
                self._park(segment)
            else:
                self._sizes[segment] = segment.size
        return len(self._sizes) < before

    def _park(self, segment: OpenSegment) -> None:
        with contextlib.suppress(OSError):  # it stays open, and whoever appends to it meets the error
            segment.park()
            self._sizes.pop(segment, None)


def _growth(entry: tuple[OpenSegment, int]) -> int:
    segment, size = entry
    return segment.size - size
