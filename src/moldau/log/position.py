"""A place in a log, in bytes: how much was appended between two of them is their distance."""

from typing import NamedTuple

from moldau.log.log import Log


class Position(NamedTuple):
    """A segment, by its base offset, and a number of its bytes."""

    base_offset: int
    size: int

    @classmethod
    def end_of(cls, log: Log) -> "Position":
        active = log.segments.active
        return cls(active.base_offset, active.size)

    def bytes_behind(self, log: Log) -> int:
        """Bytes from here to the end of the log; compaction, truncation or retention in between make it less."""
        if log.segments.active.base_offset == self.base_offset:
            return max(0, log.segments.active.size - self.size)
        behind = log.segments.from_offset(self.base_offset)
        size = sum(segment.size for segment in behind)
        return max(0, size - self.size if behind[0].base_offset == self.base_offset else size)
