"""Compacted segments that take the place of those they were made of, in one log.

The law: a swap may be left half done at any moment. `.swap` files are complete and durable before the first old file
goes; as long as one of them is there recovery can finish the swap, and does.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.core.clock import Clock
from moldau.core.files import Files
from moldau.log.log_directory import LogDirectory
from moldau.log.segment import Segment
from moldau.log.snapshots import Snapshots

if TYPE_CHECKING:
    from moldau.log.log import Log


class LogSwaps:
    """The swaps of one log, which is handed in each time."""

    def __init__(self, files: Files, clock: Clock, directory: LogDirectory, snapshots: Snapshots) -> None:
        self._files = files
        self._clock = clock
        self._directory = directory
        self._snapshots = snapshots

    def replace(self, log: "Log", base_offset: int, size: int, replaced: Sequence[tuple[int, int]]) -> bool:
        """Put a compacted segment, complete in its `.swap` files, in the place of those it was made of.

        `replaced` are their base offsets and sizes. False: they are no longer all there, or not as they were.
        """
        bases = {base for base, _ in replaced}
        old = [segment for segment in log.segments if segment.base_offset in bases]
        if [(segment.base_offset, segment.size) for segment in old] != list(replaced) or log.segments.active in old:
            return False
        if not self._directory.has_swap(base_offset):
            return False
        log.in_one_go(lambda: self._swap_in(log, base_offset, size, old))
        return True

    def _swap_in(self, log: "Log", base_offset: int, size: int, old: list[Segment]) -> None:
        """Swap, in an order in which it may be left half done at any moment.

        The segments in memory first: a sync in another thread opens those it finds here. Then the old files go, while
        `.swap` files, which are durable, say what replaces them: recovery finishes that. Only when nothing is left of
        the old ones do the new ones lose that name, `.log` first: with `.log.swap` gone the rest is only renamed. Were
        they renamed before, nothing would tell the old segments that follow from ones that are still needed.
        """
        now_ms, interval = self._clock.now_ms(), log.config.index_interval_bytes
        new = Segment(
            self._files, log.directory, base_offset, size=size, index_interval_bytes=interval, created_ms=now_ms
        )
        log.segments.replace([new, *(segment for segment in log.segments if segment not in old)])
        log.doom(old, now_ms)
        self._directory.finish_swap(base_offset)
        gone = {segment.base_offset for segment in old} - {base_offset}
        self._snapshots.remove([offset for offset in self._snapshots.offsets if offset in gone])
