"""Compaction of one log, file to file: the last record of every key stays (KIP-58, KIP-534).

The law: a record that stays keeps its offset, its timestamp and its place. A batch that loses records keeps its first
and last offset and its sequence numbers, so that neither a consumer's position nor a producer's state is disturbed.

There are two walks. The first goes over the records that are new since the last cleaning and notes the last offset of
every key. The second goes over all records and writes each that is still the last of its key. Nothing here touches a
file of the log itself: the result lies beside it in files of its own, until the owner of the log swaps it in.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from moldau.core.files import Buffer, Files
from moldau.log.compaction.job import CleanedGroup, CleanJob, CleanResult, Source
from moldau.log.compaction.records import Outline, join_records, join_shifted, outline_batch
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment, file_name
from moldau.log.txn_index import AbortedTxn, TxnIndex
from moldau.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_end_txn_marker,
    records_data,
    reseal,
)
from moldau.records.compression import compress
from moldau.records.legacy import build_message_set, read_message, read_message_set
from moldau.records.record import Record

KEY_BYTES_MAX = 32
"""Longest key that is remembered as it is; longer ones by a hash, which no short key can be equal to."""
HASH_BYTES = 40
MARKS_MAX = 1 << 25
"""New offsets, a byte each, for which a mark says whether they are the last of their key."""
WRITE_BYTES = 1 << 20
SEGMENTS_PER_GROUP_MAX = 32
"""Segments per group. Each costs the broker some renames (0.1 ms), all in one turn, when the result is swapped in."""
INDEX_ENTRY_BYTES_MAX = 12

_TIMESTAMP_MAX = (1 << 63) - 1
_EMPTY_BATCH_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
_BATCH_OVERHEAD = 12

Pace = Callable[[int], None]
"""Function that is given the number of bytes read or written: it may wait, or raise to give up the whole work."""


def clean(files: Files, job: CleanJob, pace: Pace = lambda _: None) -> CleanResult:
    """Clean a log; the result is on disk under `job.suffix`."""
    aborted = _aborted_transactions(files, job)
    segments = [_source_segment(files, job, source) for source in job.sources]
    last = LastOffsets(job.keys_max)
    bytes_mapped = _note_keys(last, job, segments, aborted, pace)
    last.mark(job.first_dirty_offset)
    wanted = [source for source in job.sources if source.base_offset < last.end_offset]
    cleaning = _Cleaning(files, job, last, aborted, _legacy_horizon_ms(files, job), pace)
    groups = cleaning.clean_all(wanted)
    return CleanResult(
        last.end_offset,
        groups,
        bytes_mapped + sum(source.size for source in wanted),
        sum(group.size for group in groups),
        len(last),
    )


def fits(group: Sequence[Source], written_bytes: int, source: Source, next_base: int, job: CleanJob) -> bool:
    """Whether a source may be added to the output of a group, even if nothing of it goes away."""
    index_entries_max = job.segment_index_bytes // INDEX_ENTRY_BYTES_MAX
    bytes_max = min(job.segment_bytes, index_entries_max * max(job.index_interval_bytes, 1))
    return (
        written_bytes + source.size <= bytes_max
        and len(group) < SEGMENTS_PER_GROUP_MAX
        and next_base - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )


# Keys


class LastOffsets:
    """Map from each key to its last offset, for a bounded number of keys."""

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.end_offset = 0
        """One past the last offset that was taken into account."""
        self._marks = bytearray()
        self._marks_start = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def note(self, outlines: Iterable[Outline], base_offset: int, from_offset: int) -> None:
        offsets = self._offsets
        for _, _, _, _, delta, key, _ in outlines:
            if key is not None and base_offset + delta >= from_offset:
                offsets[key if len(key) <= KEY_BYTES_MAX else _hash(key)] = base_offset + delta

    def note_records(self, records: Iterable[Record], from_offset: int) -> None:
        for record in records:
            if record.key is not None and record.offset >= from_offset:
                self._offsets[_name(record.key)] = record.offset

    def mark(self, from_offset: int) -> None:
        """End the first walk, which began at `from_offset`: know which batches are spent without looking into them."""
        count = self.end_offset - from_offset
        if not 0 < count <= MARKS_MAX:
            return
        self._marks_start = from_offset
        self._marks = marks = bytearray(count)
        for offset in self._offsets.values():
            if offset < self.end_offset:
                marks[offset - from_offset] = 1

    def is_spent(self, first_offset: int, next_offset: int) -> bool:
        """Whether it is certain that no record in a range is the last of its key."""
        start, end = first_offset - self._marks_start, next_offset - self._marks_start
        return start >= 0 and end <= len(self._marks) and self._marks.find(1, start, end) < 0

    def is_last(self, key: bytes, offset: int) -> bool:
        return offset >= self._offsets.get(_name(key), -1)

    def still_last(self, outlines: Iterable[Outline], base_offset: int) -> list[Outline]:
        """Records that are the last of their key, or that no cleaning has come to yet; a record without a key is
        neither."""
        get, end = self._offsets.get, self.end_offset
        return [
            each
            for each in outlines
            if (offset := base_offset + each[4]) >= end
            or ((key := each[5]) is not None and offset >= get(key if len(key) <= KEY_BYTES_MAX else _hash(key), -1))
        ]


def _name(key: bytes) -> bytes:
    return key if len(key) <= KEY_BYTES_MAX else _hash(key)


def _hash(key: bytes) -> bytes:
    return blake2b(key, digest_size=HASH_BYTES).digest()


def _note_keys(
    last: LastOffsets, job: CleanJob, segments: Sequence[Segment], aborted: Sequence[AbortedTxn], pace: Pace
) -> int:
    """Make the first walk, to its end or until the map is full; returns the number of bytes read."""
    start = job.first_dirty_offset
    transactions = Transactions(each for each in aborted if each.last_offset >= start)
    total = 0
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else job.end_offset
        if next_base <= start:
            continue
        position = segment.position_of(start) if start > segment.base_offset else 0
        for _, header, batch in segment.checked_batches(segment.size if position is None else position):
            if last.is_full:
                return total
            _note_batch(last, header, batch, transactions, start)
            total += header.size
            pace(header.size)
        segment.release()
        last.end_offset = next_base  # there may be nothing at its end
    return total


def _note_batch(
    last: LastOffsets, header: BatchHeader, batch: memoryview, transactions: "Transactions", start: int
) -> None:
    if header.magic < MAGIC_V2:
        last.note_records(read_message_set(batch), start)
    elif header.is_control:
        transactions.is_spent(header, batch)
    elif not transactions.is_aborted(header) and header.last_offset >= start:
        data = bytes(records_data(batch, header))
        last.note(outline_batch(data, header.record_count), header.base_offset, start)
    last.end_offset = max(header.next_offset, start)


# Transactions


class Transactions:
    """Recogniser of aborted batches, and of markers that nobody needs any more. It must be shown every batch, in
    order."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._open: dict[int, AbortedTxn] = {}
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Aborted transactions that still have records in the log: the entries of the new index."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        is_aborted = header.producer_id in self._open
        (self._seen_aborted if is_aborted else self._seen_committed).add(header.producer_id)
        return is_aborted

    def is_spent(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether no batch is left of the transaction that a control batch has ended."""
        self._begin_up_to(header.last_offset)
        marker = read_end_txn_marker(batch) if header.record_count else None
        if marker is None:
            return header.record_count == 0
        if marker.committed:
            return not _take(self._seen_committed, header.producer_id)
        aborted = self._open.pop(header.producer_id, None)
        was_seen = _take(self._seen_aborted, header.producer_id)
        if aborted is not None and was_seen:
            self.kept.append(aborted)
        return aborted is None or not was_seen

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            each = self._coming.popleft()
            self._open.setdefault(each.producer_id, each)


def _take(seen: set[int], producer_id: int) -> bool:
    was_there = producer_id in seen
    seen.discard(producer_id)
    return was_there


def _aborted_transactions(files: Files, job: CleanJob) -> list[AbortedTxn]:
    bases = [source.base_offset for source in job.sources] + list(job.later_offsets)
    indexes = (TxnIndex(files, f"{job.directory}/{file_name(base, '.txnindex')}") for base in bases)
    return [each for index in indexes for each in index if each.first_offset < job.end_offset]


# The second walk


class _Cleaning:
    """Writer of the groups, one after the other."""

    def __init__(
        self,
        files: Files,
        job: CleanJob,
        last: LastOffsets,
        aborted: Sequence[AbortedTxn],
        legacy_horizon_ms: int,
        pace: Pace,
    ) -> None:
        self._files = files
        self._job = job
        self._last = last
        self._transactions = Transactions(aborted)
        self._legacy_horizon_ms = legacy_horizon_ms
        self._pace = pace
        self._delete_horizon_ms = min(job.now_ms + job.delete_retention_ms, _TIMESTAMP_MAX)

    def clean_all(self, sources: Sequence[Source]) -> list[CleanedGroup]:
        """Clean segments into as few as they fit into."""
        job = self._job
        done: list[CleanedGroup] = []
        group: list[Source] = []
        output: _Output | None = None
        for number, source in enumerate(sources):
            next_base = sources[number + 1].base_offset if number + 1 < len(sources) else job.end_offset
            if output is not None and not fits(group, output.size, source, next_base, job):
                done.append(self._finish(output, group))
                output, group = None, []
            if output is None:
                output = _Output(self._files, job, source.base_offset, self._pace)
            self._clean_source(source, output)
            group.append(source)
        if output is not None:
            done.append(self._finish(output, group))
        return done

    def _clean_source(self, source: Source, output: "_Output") -> None:
        segment = _source_segment(self._files, self._job, source)
        keeps_deletes = self._files.modified_ms(segment.path) > self._legacy_horizon_ms
        for _, header, batch in segment.checked_batches():
            output.add(header, self._cleaned(header, batch, keeps_deletes))
            self._pace(header.size)

    def _finish(self, output: "_Output", group: list[Source]) -> CleanedGroup:
        size = output.finish(self._transactions.kept)
        self._transactions.kept = []
        return CleanedGroup(group[0].base_offset, size, group)

    def _cleaned(
        self, header: BatchHeader, batch: memoryview, keeps_deletes: bool
    ) -> tuple[BatchHeader, Buffer] | None:
        """The rest of a batch after cleaning; None if nothing is left."""
        if header.magic < MAGIC_V2:
            return self._cleaned_legacy(header, batch, keeps_deletes)
        left = self._cleaned_control(header, batch) if header.is_control else self._cleaned_records(header, batch)
        if left is None and self._is_last_of_producer(header):
            return empty_batch(header)  # a producer's sequence numbers and epoch must stay known
        return left

    def _cleaned_records(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, Buffer] | None:
        if self._transactions.is_aborted(header):
            return None
        if header.base_offset >= self._last.end_offset:
            return header, batch
        if self._last.is_spent(header.base_offset, header.next_offset):
            return None
        data = bytes(records_data(batch, header))
        outlines = outline_batch(data, header.record_count)
        kept = self._last.still_last(outlines, header.base_offset)
        if header.has_delete_horizon and header.base_timestamp <= self._job.now_ms:
            end = self._last.end_offset - header.base_offset
            kept = [each for each in kept if not each[6] or each[4] >= end]
        if not kept:
            return None
        wants_horizon = not header.has_delete_horizon and any(each[6] for each in kept)
        if len(kept) == len(outlines) and not wants_horizon:
            return header, batch
        return rewrite(header, data, kept, self._delete_horizon_ms if wants_horizon else None)

    def _cleaned_control(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, Buffer] | None:
        """The marker, or None: it goes like a tombstone, once everything of its transaction has gone (KIP-534)."""
        if not self._transactions.is_spent(header, batch):
            return header, batch
        if header.record_count == 0 or (header.has_delete_horizon and header.base_timestamp <= self._job.now_ms):
            return None
        if header.has_delete_horizon:
            return header, batch
        data = bytes(records_data(batch, header))
        return rewrite(header, data, outline_batch(data, header.record_count), self._delete_horizon_ms)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._job.last_batches.get(header.producer_id)
        if known is None or header.producer_id < 0:
            return False
        if known.offset >= 0:
            return header.last_offset == known.offset
        return header.is_control and header.producer_epoch == known.producer_epoch

    def _cleaned_legacy(
        self, header: BatchHeader, message: memoryview, keeps_deletes: bool
    ) -> tuple[BatchHeader, Buffer] | None:
        """The rest of a message, or of a compressed set of messages, from before Kafka 0.11; None if nothing is
        left."""
        records = list(read_message_set(message))
        kept = [record for record in records if self._keeps(record, keeps_deletes)]
        if not kept:
            return None
        if len(kept) == len(records):
            return header, message
        wrapper = read_message(message)
        time_ms = wrapper.record.timestamp if wrapper.is_log_append_time else None
        data = build_message_set(kept, magic=header.magic, codec=wrapper.codec, log_append_time_ms=time_ms)
        timestamp = max(record.timestamp for record in kept)
        length = len(data) - _BATCH_OVERHEAD
        return header._replace(base_offset=kept[-1].offset, batch_length=length, max_timestamp=timestamp), data

    def _keeps(self, record: Record, keeps_deletes: bool) -> bool:
        if record.offset >= self._last.end_offset:
            return True
        if record.key is None or not self._last.is_last(record.key, record.offset):
            return False
        return record.value is not None or keeps_deletes


class _Output:
    """The segment that is being written."""

    def __init__(self, files: Files, job: CleanJob, base_offset: int, pace: Pace) -> None:
        self._segment = Segment.create(
            files, job.directory, base_offset, job.index_interval_bytes, job.now_ms, suffix=job.suffix
        )
        self._pace = pace
        self._waiting: list[tuple[BatchHeader, Buffer]] = []
        self._waiting_bytes = 0
        self._next_offset = base_offset
        self._last_read: BatchHeader | None = None

    @property
    def size(self) -> int:
        return self._segment.size + self._waiting_bytes

    def add(self, read: BatchHeader, left: tuple[BatchHeader, Buffer] | None) -> None:
        """Take the `left` rest of a batch that was read."""
        self._last_read = read
        if left is None:
            return
        self._waiting.append(left)
        self._waiting_bytes += len(left[1])
        self._next_offset = left[0].next_offset
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()

    def _close(self) -> None:
        """End the output at the end of its sources, even if their last batch has gone.

        Recovery reads from this end which segments an interrupted swap was about to replace, and a log that ends here
        keeps its end.
        """
        last = self._last_read
        if last is not None and self._next_offset < last.next_offset and last.magic >= MAGIC_V2:
            self.add(last, empty_batch(last))

    def finish(self, aborted: Iterable[AbortedTxn]) -> int:
        """Make everything durable; returns the size."""
        self._close()
        self._write()
        for each in aborted:
            self._segment.txn_index.append(each)
        self._segment.seal()
        self._segment.sync(indexes=True)
        return self._segment.size

    def _write(self) -> None:
        if not self._waiting:
            return
        segment = self._segment
        position = segment.write([data for _, data in self._waiting], self._waiting_bytes)
        for header, data in self._waiting:
            segment.note(header.base_offset, header.last_offset, header.max_timestamp, position, len(data))
            position += len(data)
        if segment.wants_room:
            segment.make_room()
        self._pace(self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0


def rewrite(
    header: BatchHeader, data: bytes, kept: Sequence[Outline], delete_horizon_ms: int | None
) -> tuple[BatchHeader, bytes]:
    """A batch of the `kept` records in the same range of offsets; a horizon, if given, becomes its base timestamp."""
    times = [each[3] for each in kept]
    max_timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + max(times)
    header = header._replace(record_count=len(kept), max_timestamp=max_timestamp)
    if delete_horizon_ms is None:
        return reseal(header, compress(header.codec, join_records(data, kept)))
    records = join_shifted(data, kept, header.base_timestamp - delete_horizon_ms)
    attributes = header.attributes | DELETE_HORIZON_FLAG
    header = header._replace(attributes=attributes, base_timestamp=delete_horizon_ms)
    return reseal(header, compress(header.codec, records))


def empty_batch(header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """A batch that has lost all records, but not its offsets, its producer and its sequence numbers."""
    attributes = header.attributes & _EMPTY_BATCH_FLAGS
    return reseal(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _source_segment(files: Files, job: CleanJob, source: Source) -> Segment:
    return Segment(
        files,
        job.directory,
        source.base_offset,
        size=source.size,
        index_interval_bytes=job.index_interval_bytes,
        created_ms=job.now_ms,
    )


def _legacy_horizon_ms(files: Files, job: CleanJob) -> int:
    """The time before which a file was last written if its tombstones may go: batches before v2 have no horizon."""
    clean = [source for source in job.sources if source.base_offset < job.first_dirty_offset]
    if not clean:
        return 0
    path = f"{job.directory}/{file_name(clean[-1].base_offset, '.log')}"
    return files.modified_ms(path) - job.delete_retention_ms
