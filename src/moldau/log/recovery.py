"""Opening a log: finish the work that a crash interrupted, trust the part below the recovery point, check the rest.

The law: after an unclean stop no byte at or above the recovery point's segment is believed before its batch passed
bounds, checksum and order of offsets. The first that does not ends the log. After a clean stop only the tail behind
the last index entry is walked. What segments hold twice ends no log: the end never moves back.

A truncation, also one by recovery, leaves a note where the checkpoints may vouch for more than it has left: no recovery
point and no log start is believed above it.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from moldau.core.files import Files
from moldau.core.topic_config import TopicConfig
from moldau.log.checkpoints import parse_lines, render_lines
from moldau.log.leader_epochs import LeaderEpochs
from moldau.log.producers import Producers
from moldau.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    RELATIVE_OFFSET_MAX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Segment,
    file_name,
)
from moldau.log.segments import Segments
from moldau.log.snapshots import Snapshots
from moldau.protocol.errors import ApiError
from moldau.records.batch import BatchHeader, CorruptBatchError

log = logging.getLogger(__name__)

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
CUT_FILE = "truncation-checkpoint"
TEMPORARY_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, ".tmp")


class LoadedLog(NamedTuple):
    """A log's state as its files tell it."""

    segments: Segments
    leader_epochs: LeaderEpochs
    producers: Producers
    snapshots: Snapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_cut_noted: bool


def note_cut(files: Files, directory: str, offset: int) -> None:
    """Write a durable note that the log is truncated to `offset`, whatever the checkpoints say of offsets behind it."""
    files.write_atomically(f"{directory}/{CUT_FILE}", render_lines([str(offset)]))


def forget_cut(files: Files, directory: str) -> None:
    """Remove the note: the checkpoints are true again. A note that comes back does no harm, only more is checked
    then."""
    files.remove(f"{directory}/{CUT_FILE}")


class Loader:
    """Loader of one log directory; used once."""

    def __init__(self, files: Files, directory: str, config: TopicConfig, now_ms: int) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._leader_epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCH_FILE}")
        self._producers = Producers()

    def load(self, *, clean: bool, recovery_point: int, log_start_offset: int) -> LoadedLog:
        names = self._names()
        is_cut_noted = not clean and CUT_FILE in names
        if is_cut_noted:
            cut_offset = self._cut_offset()
            recovery_point, log_start_offset = min(recovery_point, cut_offset), min(log_start_offset, cut_offset)
        elif CUT_FILE in names:
            forget_cut(self._files, self._directory)
        segments = self._find_segments(names) or [self._new_segment(log_start_offset)]
        self._snapshots = Snapshots(self._files, self._directory, names)
        self._leader_epochs.load()
        segments, end = self._check(segments, clean, recovery_point)
        start = max(segments[0].base_offset, self._believable(log_start_offset, end))
        self._leader_epochs.truncate_from_end(end)
        self._leader_epochs.truncate_from_start(start)
        self._producers.map_end_offset = end
        self._snapshots.remove_strays(segment.base_offset for segment in segments)
        segments[-1].prepare_to_grow(self._config.segment_index_bytes)
        point = end if clean else min(recovery_point, end)
        if not clean and end < recovery_point:
            note_cut(self._files, self._directory, end)
            is_cut_noted = True
        return LoadedLog(
            Segments(segments), self._leader_epochs, self._producers, self._snapshots, start, end, point, is_cut_noted
        )  # fmt: skip

    def _cut_offset(self) -> int:
        try:
            return int(parse_lines(self._files.read(f"{self._directory}/{CUT_FILE}"))[0][0])
        except (ValueError, IndexError) as error:
            log.warning("%s/%s is broken, the whole log is recovered: %s", self._directory, CUT_FILE, error)
            return 0

    # What a crash may have left behind

    def _names(self) -> list[str]:
        """The files of the log, once no step is left half done."""
        if not self._files.is_directory(self._directory):
            self._files.make_directory(self._directory)
        names = self._files.list(self._directory)
        if any(name.endswith(TEMPORARY_SUFFIXES) for name in names):
            self._finish_interrupted_work(names)
            names = self._files.list(self._directory)
        logs = set(filter(_is_log, names))
        orphans = [name for name in names if _is_index(name) and file_name(_base_offset(name), ".log") not in logs]
        for name in orphans:
            self._files.remove(f"{self._directory}/{name}")
        return names

    def _finish_interrupted_work(self, names: Sequence[str]) -> None:
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        for name in names:
            if name.endswith(TEMPORARY_SUFFIXES) and not name.endswith(SWAP_SUFFIX):
                self._files.remove(f"{self._directory}/{name}")
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        self._finish_swaps(swaps, min(map(_base_offset, cleaned), default=None))

    def _finish_swaps(self, swaps: Sequence[str], first_unfinished: int | None) -> None:
        """Put complete compacted segments in the place of the segments they were made of.

        A `.cleaned` file shows that the step before had not ended: its swaps from there on are not complete, and the
        segments they were made of are still in place.
        """
        for name in swaps:
            if first_unfinished is not None and _base_offset(name) >= first_unfinished:
                self._files.remove(f"{self._directory}/{name}")
            elif name.endswith(".log" + SWAP_SUFFIX):
                self._remove_replaced(name)
        for name in sorted(swaps, key=lambda name: not name.endswith(".log" + SWAP_SUFFIX)):  # `.log` first, as above
            path = f"{self._directory}/{name}"
            if self._files.exists(path):
                self._files.rename(path, path.removesuffix(SWAP_SUFFIX))

    def _remove_replaced(self, swap: str) -> None:
        file = self._files.open(f"{self._directory}/{swap}")
        base = _base_offset(swap)
        probe = self._segment(base, file.size())
        probe.path += SWAP_SUFFIX
        end = base
        for _, header in probe.headers():
            end = header.next_offset
        for name in self._files.list(self._directory):
            if name.endswith(SEGMENT_SUFFIXES) and base <= _base_offset(name) < max(end, base + 1):
                self._files.remove(f"{self._directory}/{name}")

    # Segments

    def _find_segments(self, names: Sequence[str]) -> list[Segment]:
        bases = [_base_offset(name) for name in names if _is_log(name)]
        return [self._segment(base, self._size_of(base)) for base in bases if base >= 0]

    def _size_of(self, base_offset: int) -> int:
        return self._files.open(f"{self._directory}/{file_name(base_offset, '.log')}").size()

    def _segment(self, base_offset: int, size: int) -> Segment:
        interval = self._config.index_interval_bytes
        return Segment(
            self._files,
            self._directory,
            base_offset,
            size=size,
            index_interval_bytes=interval,
            created_ms=self._now_ms,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self._files, self._directory, base_offset, self._config.index_interval_bytes, self._now_ms
        )

    def _believable(self, log_start_offset: int, end: int) -> int:
        """The checkpointed log start offset, unless it is past the end: records in the files are not thrown away on the
        word of a checkpoint. Records that DeleteRecords had removed may be back, if the ones behind them were lost."""
        if log_start_offset <= end:
            return log_start_offset
        log.warning(
            "%s: the checkpointed log start offset %d is past the log end offset %d and is ignored",
            self._directory,
            log_start_offset,
            end,
        )
        return 0

    def _remove(self, segment: Segment) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._files.remove(segment.path.removesuffix(".log") + suffix)

    # Checking

    def _check(self, segments: list[Segment], clean: bool, recovery_point: int) -> tuple[list[Segment], int]:
        segments = self._without_leftovers(segments)
        if clean:
            try:
                end = segments[-1].next_offset()
                self._snapshots.remove_above(end)
                self._restore_producers(segments, end)
                return segments, end
            except CorruptBatchError as error:
                log.warning("%s: a clean stop left a broken tail (%s), recovering", self._directory, error)
                recovery_point = segments[-1].base_offset
        return self._recover(segments, recovery_point)

    def _without_leftovers(self, segments: list[Segment]) -> list[Segment]:
        """Remove empty segments whose base offset is below the end of the one before: they were made, but never
        used."""
        kept = segments[:1]
        for segment in segments[1:]:
            if segment.size == 0 and self._has_reached(kept[-1], segment.base_offset):
                log.warning("%s: removed, as it is empty and the segment before it goes on", segment.path)
                self._remove(segment)
            else:
                kept.append(segment)
        return kept

    def _has_reached(self, segment: Segment, offset: int) -> bool:
        try:
            return segment.next_offset() > offset
        except CorruptBatchError:
            return False  # to be cut before it gets there

    def _recover(self, segments: list[Segment], recovery_point: int) -> tuple[list[Segment], int]:
        number = max(sum(1 for segment in segments if segment.base_offset <= recovery_point) - 1, 0)
        believed, unsure = segments[:number], segments[number:]
        first = unsure[0]
        self._snapshots.remove_above(first.base_offset)
        self._leader_epochs.truncate_from_end(first.base_offset)
        self._restore_producers(believed, first.base_offset)
        checked: list[Segment] = []
        end = first.base_offset
        for number, segment in enumerate(unsure):
            if segment.base_offset < end:
                if self._is_repeated(segment, end):
                    continue
                self._drop_rest(unsure[number:])
                break
            if segment is not first:
                self._snapshots.take(self._producers, segment.base_offset)
            checked.append(segment)
            end, is_whole = self._check_and_cut(segment, unsure[number + 1 :])
            if not is_whole:
                break
        return [*believed, *checked], end

    def _check_and_cut(self, segment: Segment, following: Sequence[Segment]) -> tuple[int, bool]:
        """Recover one segment; returns its end, and whether the segments behind it may be believed."""
        next_offset, valid_bytes = self._recover_segment(segment)
        is_whole = valid_bytes == segment.size and not self._lost_its_end(next_offset, following)
        if not is_whole:
            self._drop_rest(following)
        segment.cut(valid_bytes)  # also if that is all: room on the disk may be reserved behind it
        segment.seal()
        return next_offset, is_whole

    def _is_repeated(self, segment: Segment, end: int) -> bool:
        """Remove a segment if the one before it has all its offsets; whether it was removed."""
        next_offset = segment.base_offset
        try:
            for _, header in segment.headers():
                next_offset = header.next_offset
        except CorruptBatchError:
            pass  # whatever comes there is not of this log
        if next_offset > end:
            return False
        log.warning("%s: removed, as the segment before it goes up to offset %d", segment.path, end)
        self._remove(segment)
        return True

    def _lost_its_end(self, end: int, following: Sequence[Segment]) -> bool:
        """Whether power loss took the end of a full segment right between two batches.

        Its successor begins where it ended, unless compaction has taken records away.
        """
        return bool(following) and following[0].base_offset > end and not self._config.is_compacted

    def _drop_rest(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            log.warning("%s: removed, as the segment before it was truncated", segment.path)
            self._remove(segment)
        # Durable before the cut is: a dropped segment that came back behind a log that was cut would be believed.
        self._files.sync_directory(self._directory)

    def _recover_segment(self, segment: Segment) -> tuple[int, int]:
        """Check all batches and build the indexes anew; returns the next offset, and the number of good bytes."""
        segment.start_over()
        segment.txn_index.reset()
        next_offset, valid_bytes = segment.base_offset, 0
        try:
            for position, header, batch in segment.checked_batches():
                _check_order(header, next_offset, segment.base_offset)
                self._take_in(segment, position, header, batch)
                next_offset, valid_bytes = header.next_offset, position + header.size
        except ApiError as error:
            if segment.is_filler_from(valid_bytes):
                segment.cut(valid_bytes)  # it is whole, and what follows it may be believed
            else:
                log.warning("%s: truncated to %d of %d bytes: %s", segment.path, valid_bytes, segment.size, error)
        return next_offset, valid_bytes

    def _take_in(self, segment: Segment, position: int, header: BatchHeader, batch: memoryview) -> None:
        aborted = self._producers.replay(header, lambda: batch, self._now_ms)
        if aborted is not None:
            segment.txn_index.append(aborted)
        if header.partition_leader_epoch > self._leader_epochs.latest:
            self._leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        segment.note(header.base_offset, header.last_offset, header.max_timestamp, position, header.size)
        if segment.wants_room:
            segment.make_room()

    def _restore_producers(self, segments: Sequence[Segment], end: int) -> None:
        self._snapshots.restore(self._producers, end, self._now_ms)
        try:
            replay_producers(self._producers, segments, end, self._now_ms)
        except CorruptBatchError as error:  # below the recovery point: what was durable has rotted
            log.error("%s: producer state was recovered only in part: %s", self._directory, error)


def replay_producers(producers: Producers, segments: Sequence[Segment], end: int, now_ms: int) -> None:
    """Bring producer state up to `end` by the headers of the batches between."""
    start = producers.map_end_offset
    for number, segment in enumerate(segments):
        if start >= end or (number + 1 < len(segments) and segments[number + 1].base_offset <= start):
            continue
        first = segment.position_of(start) if start > segment.base_offset else 0
        if first is None:
            continue
        for position, header in segment.headers(first):
            if header.base_offset >= end:
                break
            producers.replay(header, partial(segment.batch_at, position, header), now_ms)
    producers.map_end_offset = end


def _check_order(header: BatchHeader, next_offset: int, base_offset: int) -> None:
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        raise CorruptBatchError(f"offset {header.base_offset} where {next_offset} or more is due")
    if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        raise CorruptBatchError(f"offset {header.last_offset} is too far from {base_offset}")


def _is_log(name: str) -> bool:
    return name.endswith(".log")


def _is_index(name: str) -> bool:
    return name.endswith(SEGMENT_SUFFIXES[1:])


def _base_offset(name: str) -> int:
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isdecimal() else -1
