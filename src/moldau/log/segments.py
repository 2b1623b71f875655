"""The segments of a log in order. A thread may look at them at any time: one more comes, or all are replaced."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from moldau.core.invariants import invariant
from moldau.log.open_files import OpenFiles
from moldau.log.segment import Segment

OPEN_SEALED_MAX = 4
"""Descriptors that one log keeps for its older segments."""


class Segments:
    """Segments by base offset, one at least."""

    __slots__ = ("_all", "_bases", "_open_files", "_opened", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._opened: list[Segment] = []
        self._open_files: OpenFiles | None = None
        self.replace(segments)

    def belong_to(self, open_files: OpenFiles) -> None:
        """Join the open files of a broker, which decide how long files stay open, with these segments and all later
        ones."""
        self._open_files = open_files
        for segment in self._all:
            segment.belongs_to(open_files)

    def replace(self, segments: Iterable[Segment]) -> None:
        """Replace all segments by these, given in any order."""
        self._all = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._all]
        invariant(len(self._all) > 0, "a log has a segment")
        for segment in self._all:
            segment.belongs_to(self._open_files)
        self.active = self._all[-1]
        self._opened = [segment for segment in self._opened if segment in self._all]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> Segment:
        return self._all[0]

    def add(self, segment: Segment) -> None:
        """Add a new last segment."""
        invariant(segment.base_offset > self.active.base_offset, f"segment {segment.base_offset} is not the newest")
        segment.belongs_to(self._open_files)
        self._all.append(segment)  # not a new list: a log of many segments would pay for all of them at each roll
        self._bases.append(segment.base_offset)
        self.active = segment

    def floor(self, offset: int) -> Segment:
        """The segment that would hold `offset`."""
        return self._all[max(bisect_right(self._bases, offset) - 1, 0)]

    def after(self, segment: Segment) -> Segment | None:
        number = bisect_right(self._bases, segment.base_offset)
        return self._all[number] if number < len(self._all) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all after it."""
        return self._all[max(bisect_right(self._bases, offset) - 1, 0) :]

    def opened(self, segment: Segment) -> None:
        """Note that a sealed segment is about to be read: only a few keep their descriptor."""
        if segment in self._opened:
            return
        self._opened.append(segment)
        if len(self._opened) > OPEN_SEALED_MAX:
            self._close(self._opened.pop(0))

    def release_sealed(self) -> None:
        """Close the files that only readers of old data needed."""
        for segment in self._all[:-1]:
            self._close(segment)
        self._opened = []

    def release_all(self) -> None:
        """Close all files: the log has ended, and nobody may use it any more."""
        for segment in self._all:
            segment.release()
        self._opened = []

    def _close(self, segment: Segment) -> None:
        if segment is not self.active:
            segment.release()
