"""One partition's log: append at the end, read anywhere, delete at the start.

The law: a log belongs to the event loop. Only `sync` may be called from a thread, while the loop goes on appending. An
append is the 16 bytes of a batch that the leader owns, one vectored write, and a few counters: its cost depends neither
on the number of stored records nor on the number of producers.
"""

import errno
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from moldau.core.clock import Clock
from moldau.core.file_errors import passes
from moldau.core.files import Buffer, FileRegion, Files, SyncEngine
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.topic_config import TopicConfig
from moldau.log.compaction.job import CleanedGroup, CleanJob
from moldau.log.leader_epochs import EpochEnd, LeaderEpochs
from moldau.log.log_directory import LogDirectory
from moldau.log.log_durability import LogDurability, OnSynced
from moldau.log.log_swaps import LogSwaps
from moldau.log.open_files import OpenFiles
from moldau.log.producers import BatchMetadata, Producers
from moldau.log.recovery import LoadedLog, Loader, replay_producers
from moldau.log.retention import expired_count
from moldau.log.roll_policy import fits, is_old, room_in
from moldau.log.segment import NO_ROOM, RELATIVE_OFFSET_MAX, Segment
from moldau.log.segments import Segments
from moldau.log.timestamps import Search, TimestampOffset, find_max_timestamp, find_timestamp
from moldau.log.traffic import Traffic
from moldau.log.txn_index import AbortedTxn
from moldau.log.verification import VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    EndTxnMarker,
    read_end_txn_marker,
    read_sent_batches,
    stamp,
)
from moldau.records.validate import PreparedBatch

logger = logging.getLogger(__name__)

T = TypeVar("T")

FailureListener = Callable[["Log", OSError], None]
"""Listener for a log and the error that it met: one that passes, or one that took it offline (then `failure` is
set)."""


class AppendResult(NamedTuple):
    """Place of a batch; `duplicate`: it was there before. `log_append_time` is -1 where producers set the time."""

    base_offset: int
    last_offset: int
    log_append_time: int
    duplicate: bool


class Log:
    """The log of one partition. Made by `Log.open`."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        loaded: LoadedLog,
    ) -> None:
        self._files = files
        self._clock = clock
        self.directory = directory
        self.data_directory = directory.rpartition("/")[0]
        self.topic_partition = topic_partition
        self.topic_id: bytes | None = None
        self.is_named = False  # in its directory
        self.config = config
        self.segments: Segments = loaded.segments
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.producers: Producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.clean_offset = 0
        self.failure: OSError | None = None
        self.on_failure: FailureListener | None = None
        self.on_stopped: Callable[[Log], None] | None = None
        self.is_full = False
        self.traffic = Traffic()
        self._directory = LogDirectory(files, directory)
        self._durability = LogDurability(files, self._directory, loaded)
        self._swaps = LogSwaps(files, clock, self._directory, loaded.snapshots)

    @classmethod
    def open(
        cls,
        files: Files,
        clock: Clock,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        topic_id: bytes | None = None,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        on_failure: FailureListener | None = None,
        open_files: OpenFiles | None = None,
    ) -> "Log":
        """Open or create the log in `directory`. `clean`: its last user closed it; the rest is from the checkpoints.

        `on_failure` is called when a disk fails or is full; this may happen in the thread that called `sync`.
        """
        loader = Loader(files, directory, config, clock.now_ms())
        loaded = loader.load(clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
        log = cls(files, clock, directory, topic_partition, config, loaded)
        log.on_failure = on_failure
        if open_files is not None:
            log.segments.belong_to(open_files)
        log._durability.loaded(log, clean=clean, recovery_point=recovery_point, log_start_offset=log_start_offset)
        log.topic_id = log._directory.load_topic_id(topic_id)
        log.is_named = any(log.topic_id or b"")
        log.producers.drop_below(log.log_start_offset)
        return log

    def name_topic(self, topic_id: bytes) -> None:
        """Take the id of the topic, and write it down: the directory has none. Taken it is also if the disk refuses."""
        self.topic_id = topic_id
        self.guarded(lambda: self._directory.write_topic_id(topic_id))
        self.is_named = True

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append_as_leader(
        self,
        batch: PreparedBatch,
        leader_epoch: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append a batch, which gets its offsets here. The first of a transaction needs the `guard` that was made
        before its coordinator was asked; a marker is of a transaction of this version."""
        if self.failure is not None:
            raise self._unavailable()
        header, body = batch
        _, length, _, _, _, attributes, delta, _, timestamp, producer_id, _, _, _ = header
        marker: EndTxnMarker | None = None
        if producer_id >= 0:  # checked before anything is written: a refused batch must leave no trace
            if attributes & CONTROL_FLAG:
                marker = self._check_marker(batch, transaction_version)
            else:
                duplicate = self._check_producer(header, guard)
                if duplicate is not None:
                    return AppendResult(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True)
        base_offset = self.log_end_offset
        last_offset = base_offset + delta
        size = length + LOG_OVERHEAD
        segment = self.segments.active
        config, size_max, offset_max, timestamp_max = segment.room
        try:
            # The comparisons stand here and not in a function, as a call would cost more than they do. A configuration
            # that was replaced fails the last one, and so brings the append to where all limits are looked up again.
            if (
                segment.size + size > size_max
                or last_offset > offset_max
                or timestamp > timestamp_max
                or config is not self.config
            ):
                segment = self._segment_for(size, last_offset, timestamp, now_ms)
            if leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(leader_epoch, base_offset)
            chunks = (stamp(base_offset, length, leader_epoch), body)
            position = segment.write(chunks, size)
        except OSError as error:
            raise self.io_error(error) from error
        # Only behind the write: after a refused one the log ends where it ended, and the next append writes there.
        self.log_end_offset = last_offset + 1
        segment.note(base_offset, last_offset, timestamp, position, size)
        if producer_id >= 0:
            if marker is None:
                self.producers.update(header, base_offset, now_ms)
            else:
                self._complete(segment, header, base_offset, marker, now_ms, transaction_version)
        append_time = timestamp if attributes & LOG_APPEND_TIME_FLAG else NO_TIMESTAMP
        return AppendResult(base_offset, last_offset, append_time, False)

    def append_as_follower(self, data: Buffer, now_ms: int) -> int:
        """Append batches as the leader sent them, but not one that is cut off at the end; returns the bytes
        appended."""
        if self.failure is not None:
            raise self._unavailable()
        headers, size = read_sent_batches(data, self.log_end_offset)
        if not headers:
            return 0
        view = memoryview(data)
        _, _, _, _, _, _, delta, _, timestamp, _, _, _, _ = last = headers[-1]
        last_offset = last.base_offset + delta
        segment = self.segments.active
        config, size_max, offset_max, timestamp_max = segment.room
        if (
            segment.size + size <= size_max
            and last_offset <= offset_max
            and timestamp <= timestamp_max
            and config is self.config
        ):
            self._append_as_sent(segment, headers, view[:size], now_ms)
        elif fits(
            segment, self.config, size, last_offset, timestamp, now_ms
        ):  # not full: `room` was closed for another reason
            self._append_as_sent(self._segment_for_sent(last, size, now_ms), headers, view[:size], now_ms)
        else:
            self._append_singly(headers, view, now_ms)
        return size

    def _append_singly(self, headers: list[BatchHeader], data: memoryview, now_ms: int) -> None:
        """Append batches one by one: a new segment begins somewhere among them."""
        position = 0
        for header in headers:
            segment = self._segment_for_sent(header, header.size, now_ms)
            self._append_as_sent(segment, [header], data[position : position + header.size], now_ms)
            position += header.size

    def _segment_for_sent(self, last: BatchHeader, size: int, now_ms: int) -> Segment:
        try:
            return self._segment_for(size, last.last_offset, last.max_timestamp, now_ms)
        except OSError as error:
            raise self.io_error(error) from error

    def _append_as_sent(self, segment: Segment, headers: list[BatchHeader], data: memoryview, now_ms: int) -> None:
        """Append batches, which are `data` together, to one segment in one write."""
        try:
            position = start = segment.write((data,), len(data))
        except OSError as error:
            raise self.io_error(error) from error
        self.log_end_offset = headers[-1].next_offset
        epochs, producers, note = self.leader_epochs, self.producers, segment.note
        for header in headers:
            base, length, epoch, _, _, attributes, delta, _, timestamp, producer_id, _, _, _ = header
            if epoch > epochs.latest:
                epochs.assign(epoch, base)
            size = length + LOG_OVERHEAD
            note(base, base + delta, timestamp, position, size)
            if producer_id >= 0:
                if attributes & CONTROL_FLAG:
                    self._replay_marker(segment, header, data[position - start : position - start + size], now_ms)
                else:
                    producers.update(header, base, now_ms)
            position += size

    def _replay_marker(self, segment: Segment, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        aborted = self.producers.replay(header, lambda: batch, now_ms)
        if aborted is not None:
            self._add_aborted(segment, aborted)

    def _check_producer(self, header: BatchHeader, guard: VerificationGuard | None) -> BatchMetadata | None:
        """Check a batch in or outside of a transaction, as `Producers.check` does."""
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        producers = self.producers
        if attributes & TRANSACTIONAL_FLAG:
            return producers.check_transactional(producer_id, epoch, sequence, delta, guard)
        duplicate = producers.check(producer_id, epoch, sequence, delta)
        if duplicate is None:
            producers.check_outside(producer_id)
        return duplicate

    def _check_marker(self, batch: PreparedBatch, transaction_version: int) -> EndTxnMarker | None:
        header = batch.header
        marker = read_end_txn_marker(stamp(0, header.batch_length, 0) + bytes(batch.body))
        if marker is not None:
            self.producers.check_marker(header.producer_id, header.producer_epoch, marker, transaction_version)
        return marker

    def _complete(
        self,
        segment: Segment,
        header: BatchHeader,
        base_offset: int,
        marker: EndTxnMarker,
        now_ms: int,
        transaction_version: int,
    ) -> None:
        completed = self.producers.complete(header, base_offset, marker, now_ms, transaction_version)
        if completed is not None and not completed.committed:
            self._add_aborted(segment, self.producers.aborted(completed))

    def _add_aborted(self, segment: Segment, aborted: AbortedTxn) -> None:
        try:
            segment.txn_index.append(aborted)
        except OSError as error:
            if not passes(error):
                raise self.fail(error) from error
            # The index has it in memory, and is written before the segment is sealed.

    def _segment_for(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The segment to append to: the active one, or a new one if that is full or old."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "the disk is full", self.directory)
        segment = self.segments.active
        segment.settle()  # `fits` counts index entries, and batches that were only noted may still become some
        if segment.wants_room:
            segment.make_room()
        if fits(segment, self.config, size, last_offset, timestamp, now_ms):
            segment.room = room_in(segment, self.config)
            return segment
        if size > self.config.segment_bytes:
            reason = f"a batch of {size} bytes does not fit into a segment of {self.config.segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, reason)
        return self.roll(now_ms, last_offset)

    def roll(self, now_ms: int, last_offset: int = 0) -> Segment:
        """Start a new segment at the end of the log."""
        old = self.segments.active
        base_offset = self.log_end_offset
        if last_offset - base_offset > RELATIVE_OFFSET_MAX:
            base_offset = last_offset - RELATIVE_OFFSET_MAX  # a follower of a log with a gap that large
        if base_offset == old.base_offset:
            return old  # nothing was appended to it: a second file of the same name would replace it
        old.seal()
        self._durability.forget_cut()
        # Before the segment: a snapshot too many does no harm, but a segment that is not used looks like the log's end.
        self._snapshots.take(self.producers, base_offset)
        new = self._directory.new_segment(base_offset, self.config, now_ms)
        self._durability.sealed(old)
        self.segments.add(new)
        self.segments.opened(old)
        return new

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll an active segment that is older than segment.ms though nothing was appended."""
        active = self.segments.active
        if self.failure is not None or active.size == 0 or not is_old(active, self.config, now_ms, now_ms):
            return False
        self.guarded(lambda: self.roll(now_ms))
        return True

    # Reading

    def read(self, offset: int, max_bytes: int, up_to_offset: int, min_one_batch: bool = True) -> FileRegion | None:
        """Whole batches of one segment from the one with `offset`, all below `up_to_offset`; None if there is none yet.

        With `min_one_batch` the first batch comes even if it is larger than `max_bytes`; without it the answer is then
        None.
        """
        if self.failure is not None:
            raise self._unavailable()
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        if offset >= up_to_offset:
            return None
        segments = self.segments
        segment = segments.active
        if offset < segment.base_offset:
            segment = segments.floor(offset)
        try:
            while True:
                next_segment = None if segment is segments.active else segments.after(segment)
                if next_segment is not None and segment.is_emptied():
                    segment = next_segment  # librdkafka takes answers without any record for a limit that is too low
                    continue
                start = segment.position_of(offset)
                if start is not None:
                    segment_end = end if next_segment is None else next_segment.base_offset
                    limit = segment.size if up_to_offset >= segment_end else segment.position_of(up_to_offset)
                    if next_segment is not None:
                        segments.opened(segment)
                    return segment.region(
                        start, segment.size if limit is None else limit, max_bytes, min_one_batch=min_one_batch
                    )
                if next_segment is None:
                    return None
                segment = next_segment  # compaction has removed the end of the one before
        except OSError as error:
            raise self.io_error(error) from error

    def aborted_transactions(self, offset: int, up_to_offset: int) -> list[AbortedTxn]:
        """Aborted transactions that overlap a range, for a reader of committed records."""
        found: list[AbortedTxn] = []
        for segment in self.segments.from_offset(offset):
            for aborted in segment.txn_index if segment.txn_index.reaches(offset) else ():
                if aborted.last_offset >= offset and aborted.first_offset < up_to_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= up_to_offset:
                    return found
        return found

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""
        first_open = self.producers.first_open_offset()
        return self.log_end_offset if first_open is None else max(first_open, self.log_start_offset)

    def last_stable_offset_below(self, high_watermark: int) -> int:
        """The last stable offset while markers at or above the high watermark do not count yet."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is not older than `timestamp`."""
        return self.guarded(lambda: find_timestamp(self, timestamp))

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the youngest timestamp (KIP-734)."""
        return self.guarded(lambda: find_max_timestamp(self))

    def next_region(self, search: Search) -> FileRegion | None:
        """The region that a search by time reads next; the reading itself may be done in another thread."""
        return self.guarded(lambda: search.next_region(self))

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """The end offset of a leader epoch in this log (KIP-101)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Forgetting

    def advance_log_start(self, offset: int) -> bool:
        """Move the log start offset to `offset`; segments below it are deleted at the next retention pass."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = min(offset, self.log_end_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self.producers.drop_below(self.log_start_offset)
        return True

    def delete_expired(self, now_ms: int, high_watermark: int) -> list[int]:
        """Delete the segments that the topic's settings no longer ask for; returns their base offsets."""
        if self.failure is not None:
            return []
        bases = [segment.base_offset for segment in self.segments]
        count = self.guarded(lambda: expired_count(self, now_ms, high_watermark))
        if count:
            if count == len(bases):  # a log has a segment at all times: the last one goes only behind a new one
                self.guarded(lambda: self.roll(now_ms))
            self.all_or_offline(lambda: self._drop_oldest(count, now_ms))
        self.segments.release_sealed()
        return bases[:count]

    def _drop_oldest(self, count: int, now_ms: int) -> None:
        """Drop the first `count` segments, the oldest first: after a crash in between the rest has no gap."""
        dropped, kept = list(self.segments)[:count], list(self.segments)[count:]
        self._directory.disown_swaps()
        self.segments.replace(kept)
        self.advance_log_start(kept[0].base_offset)
        self.doom(dropped, now_ms)
        self._snapshots.remove_below(kept[0].base_offset)

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to `offset`: a follower whose log differs from that of the new leader does this."""
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)  # an epoch without a record yet is given up, too
            return False
        if offset < self.segments.first.base_offset:  # no batch is left, and the new one must start at `offset`
            self.truncate_fully_and_start_at(offset)
            return True
        self.guarded(lambda: self._begin_truncation(offset))
        self.all_or_offline(lambda: self._truncate(offset))
        return True

    def _begin_truncation(self, offset: int) -> None:
        self.clean_offset = min(self.clean_offset, offset)
        self._durability.begin_truncation(self, offset)

    def _truncate(self, offset: int) -> None:
        """Truncate in an order that may be interrupted after any step.

        First, durably, comes the note that nothing is checkpointed past `offset`. Then go compacted segments that are
        not swapped in, as they hold the records that are truncated. Then go segments from the last one back, so that
        none is behind a gap, and the names are synced: a segment that came back behind records that are written later
        would be believed. The last step is the cut in the file, which is durable with the next sync; before that
        nothing is vouched for.
        """
        now_ms = self._clock.now_ms()
        kept = [segment for segment in self.segments if segment.base_offset <= offset]
        dropped = [segment for segment in self.segments if segment.base_offset > offset]
        if dropped:
            self._directory.disown_swaps()
        self.segments.replace(kept)
        self.doom(dropped[::-1], now_ms)
        self._snapshots.remove_above(offset)
        if dropped:
            self._files.sync_directory(self.directory)
        active = self.segments.active
        active.truncate_to(offset)
        active.prepare_to_grow(self.config.segment_index_bytes)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._snapshots.restore(self.producers, offset, now_ms)
        replay_producers(self.producers, kept, offset, now_ms)
        self.producers.drop_below(self.log_start_offset)
        self._durability.end_truncation()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`: a follower whose leader no longer has the next records does this."""
        self.guarded(lambda: self._begin_truncation(offset))
        self.all_or_offline(lambda: self._start_over(offset))

    def _start_over(self, offset: int) -> None:
        """Drop all segments in the order of `_truncate`, then begin a new one, which may have the name of an old
        one."""
        now_ms = self._clock.now_ms()
        self._directory.disown_swaps()
        self.doom(list(self.segments)[::-1], now_ms)
        self._snapshots.remove_above(-1)
        self._files.sync_directory(self.directory)
        new = self._directory.new_segment(offset, self.config, now_ms)
        self.segments.replace([new])
        self.log_start_offset = self.log_end_offset = offset
        self.leader_epochs.clear()
        self.producers.load([])
        self.producers.map_end_offset = offset
        self._durability.end_truncation()

    # Compaction

    @property
    def truncations(self) -> int:
        """A number that changes with every truncation."""
        return self._durability.truncations

    def stage_segment(self, job: CleanJob, group: CleanedGroup) -> bool:
        """Name a compacted segment so that recovery would swap it in; False if the log has changed since the job."""
        return self._swaps.stage(self, job, group)

    def replace_segments(self, job: CleanJob, group: CleanedGroup) -> bool:
        """Swap in a compacted segment that was staged, durably; False if the log has changed since the job."""
        return self._swaps.replace(self, job, group)

    def doom(self, segments: list[Segment], now_ms: int) -> None:
        """Rename the files of segments out of the log, in this order; they are removed later."""
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments:
            self._directory.doom(segment, due_ms)
            self._durability.dropped(segment)
        self._directory.changed()

    def remove_doomed(self, now_ms: int) -> None:
        """Remove the files whose time has come. May be called from a thread."""
        self._directory.remove_doomed(now_ms)

    # Durability

    def sync(self, *, sealed_only: bool = False) -> int:
        """Make everything durable that was appended before this call; returns the offset up to which the log is
        durable.

        `sealed_only` leaves the active segment to the operating system. Meant for a thread.
        """
        return self._durability.sync(self, sealed_only=sealed_only)

    def sync_later(self, engine: SyncEngine, then: OnSynced) -> bool:
        """Do as `sync`, without waiting, and call `then`; False: it takes more than that, and nothing has begun."""
        return self._durability.sync_later(self, engine, then)

    def checkpoint(self) -> None:
        """Write the files that must be on disk before a recovery point beyond them is. For a thread."""
        self._durability.checkpoint(self)

    def close(self) -> None:
        """Close the log: all its files are durable, so that the next user has nothing to check."""
        if self.failure is not None:
            return
        self.guarded(lambda: self._durability.complete_files(self))
        self.checkpoint()
        self.sync()
        self.segments.active.release()
        self.segments.release_sealed()

    # Failures

    def fail(self, error: OSError) -> ApiError:
        """Take the log offline for good, as a file could not be used. Returns the error to raise."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(self, error)
        return self._unavailable()

    def stop(self, error: InvariantError) -> ApiError:
        """Take this partition, but not its directory, offline, as an invariant is broken. Returns the error to raise.
        The next start recovers the log."""
        if self.failure is None:
            self.failure = OSError(errno.ENOTRECOVERABLE, str(error), self.directory)
            logger.critical("%s is offline: %s", self.topic_partition, error, exc_info=error)
            if self.on_stopped is not None:
                self.on_stopped(self)
        return self._unavailable()

    def retire(self) -> None:
        """Make the log unusable for everybody who still holds it: the partition is being deleted. Its files are closed
        now, or the disk would keep their room for as long as anybody holds it."""
        if self.failure is None:
            self.failure = FileNotFoundError(errno.ENOENT, "the partition is deleted", self.directory)
        self.segments.release_all()

    def io_error(self, error: OSError) -> ApiError:
        """Handle a failed file operation; returns the error to raise.

        An error that may pass is refused and leaves the log as it was: it can still be read, and can shrink. Any other
        error takes the log offline.
        """
        if not passes(error):
            return self.fail(error)
        if self.on_failure is not None:
            self.on_failure(self, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error.strerror}")

    def refuse_appends(self, *, is_full: bool) -> None:
        """Refuse appends because the disk is full, or accept them again."""
        self.is_full = is_full
        if is_full:
            self.segments.active.room = NO_ROOM  # so that every append comes by where this is looked at

    def guarded(self, action: Callable[[], T]) -> T:
        """Do work on the disk; an error of its files becomes an error of this log."""
        if self.failure is not None:
            raise self._unavailable()
        try:
            return action()
        except OSError as error:
            raise self.io_error(error) from error

    def all_or_offline(self, action: Callable[[], None]) -> None:
        """Do work that is several steps on the disk. An error in between takes the log offline, also one that may pass:
        memory and files do not agree any more, and recovery finishes the work."""
        self.guarded(lambda: None)  # a log that is offline already is not touched
        try:
            action()
        except OSError as error:
            if passes(error):
                raise self.stop(InvariantError(f"half done, to be finished at the next start: {error}")) from error
            raise self.fail(error) from error

    def _unavailable(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is offline: {self.failure}")

    def _out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.topic_partition} has {self.log_start_offset} to {self.log_end_offset}, {offset} is outside",
        )
