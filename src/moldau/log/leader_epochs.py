"""Start offsets of the leader epochs in one log: `leader-epoch-checkpoint` (KIP-101, KIP-279).

The law: the file is written when the log is synced for a checkpoint, not at each change, and is believed only below the
recovery point. Entries above it may be about records that have been truncated since, and every batch carries its own
epoch.
"""

from bisect import bisect_right
from typing import NamedTuple

from moldau.core.files import Files
from moldau.log.checkpoints import CheckpointError, parse_lines, render_lines

NO_EPOCH = -1
NO_OFFSET = -1


class EpochStart(NamedTuple):
    """The first offset that the leader of `epoch` wrote."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch known up to the one asked for, and one past its last offset; (-1, -1) if there is none."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Epochs and start offsets, both rising."""

    __slots__ = ("_dirty", "_entries", "_files", "_path", "latest")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._entries: list[EpochStart] = []
        self._dirty = False
        self.latest: int = NO_EPOCH

    def load(self) -> None:
        """Read the file; a broken one counts as missing."""
        if not self._files.exists(self._path):
            return
        try:
            rows = parse_lines(self._files.read(self._path))
            entries = [EpochStart(int(epoch), int(start)) for epoch, start in rows]
        except (CheckpointError, ValueError):
            entries = []
        self._entries = []
        for entry in entries:
            self.assign(*entry)
        self._dirty = False

    def flush(self) -> None:
        """Write the file if it is out of date."""
        if self._dirty:
            self._dirty = False  # first, as the loop may go on while a thread writes
            lines = [f"{entry.epoch} {entry.start_offset}" for entry in self._entries]
            try:
                self._files.write_atomically(self._path, render_lines(lines))
            except OSError:
                self._dirty = True
                raise

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that the leader of `epoch` starts to write at `start_offset`. Entries that contradict it are dropped."""
        if epoch <= self.latest:
            return
        kept = [entry for entry in self._entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochStart(epoch, start_offset)])

    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[number - 1].epoch if number else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The end of `epoch`, for a follower that asks where its log parts from this one."""
        if epoch == NO_EPOCH or epoch > self.latest:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        number = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[number].start_offset
        return EpochEnd(self._entries[number - 1].epoch if number else epoch, end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at or behind `end_offset`, which is the log end offset now."""
        if self._entries and self._entries[-1].start_offset >= end_offset:
            self._replace([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that end before `start_offset`, the log start offset now: the epoch in force there starts with
        it."""
        number = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if number and self._entries[0].start_offset < start_offset:
            in_force = EpochStart(self._entries[number - 1].epoch, start_offset)
            self._replace([in_force, *self._entries[number:]])

    def clear(self) -> None:
        self._replace([])

    def _replace(self, entries: list[EpochStart]) -> None:
        self._entries = entries
        self._dirty = True
        self.latest = entries[-1].epoch if entries else NO_EPOCH
