"""Swaps of one log: compacted segments take the place of the segments they were made of.

The law: a swap may be interrupted after any step. `.swap` files are complete and durable before the first old file
goes; as long as one of them is there recovery can finish the swap, and does. So they are there only while the old
segments are the ones that the new segment was made of: the loop gives them their names, and disowns them before it
drops or truncates segments.
"""

from typing import TYPE_CHECKING

from moldau.core.clock import Clock
from moldau.core.files import Files
from moldau.log.compaction.job import CleanedGroup, CleanJob
from moldau.log.log_directory import LogDirectory
from moldau.log.segment import Segment
from moldau.log.snapshots import Snapshots

if TYPE_CHECKING:
    from moldau.log.log import Log


class LogSwaps:
    """The swaps of one log, which each call is handed."""

    def __init__(self, files: Files, clock: Clock, directory: LogDirectory, snapshots: Snapshots) -> None:
        self._files = files
        self._clock = clock
        self._directory = directory
        self._snapshots = snapshots

    def stage(self, log: "Log", job: CleanJob, group: CleanedGroup) -> bool:
        """Name a compacted segment so that recovery would swap it in. Make the name durable before `replace`.

        False: the segments that it was made of are not all there any more, or have changed.
        """
        if self._replaced(log, job, group) is None:
            return False
        self._directory.stage(group.base_offset, job.suffix)
        return True

    def replace(self, log: "Log", job: CleanJob, group: CleanedGroup) -> bool:
        """Put a compacted segment, complete in its `.swap` files, in the place of the segments it was made of; False as
        for `stage`."""
        old = self._replaced(log, job, group)
        if old is None or not self._directory.has_swap(group.base_offset):
            return False
        log.all_or_offline(lambda: self._swap_in(log, group.base_offset, group.size, old))
        return True

    def _replaced(self, log: "Log", job: CleanJob, group: CleanedGroup) -> list[Segment] | None:
        """The segments that a group was made of; None if one is missing or has changed.

        Equal sizes prove nothing: a log that was truncated may have grown to the same size again.
        """
        bases = {source.base_offset for source in group.sources}
        old = [segment for segment in log.segments if segment.base_offset in bases]
        is_same = [(segment.base_offset, segment.size) for segment in old] == list(group.sources)
        return old if is_same and job.truncations == log.truncations and log.segments.active not in old else None

    def _swap_in(self, log: "Log", base_offset: int, size: int, old: list[Segment]) -> None:
        """Swap in an order that may be interrupted after any step.

        The segments in memory come first: a sync in another thread opens the segments that it finds here. Then the old
        files go, while `.swap` files, which are durable, say what replaces them: recovery finishes that. Only when no
        old file is left do the new ones lose the suffix, `.log` first: once `.log.swap` is gone recovery only renames
        the rest. If they were renamed earlier, nothing would distinguish old segments behind them from segments that
        are still needed.
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
