"""Helpers for tests of logs: a log in memory, batches to put into it, and readers of its content."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from moldau.core.clock import ManualClock
from moldau.core.files import Files
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.verification import NOT_VERIFIED
from moldau.records.batch import (
    BatchHeader,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_records,
    split_batches,
)
from moldau.records.validate import PreparedBatch, prepare_own_batch

PARTITION = TopicPartition("events", 3)
DIRECTORY = "/data/events-3"
NOW_MS = 1_700_000_000_000

CONFIG = TopicConfig(segment_bytes=1 << 20)


def small_segments(segment_bytes: int = 4096, **values: int) -> TopicConfig:
    config = replace(CONFIG, segment_bytes=segment_bytes, index_interval_bytes=256)
    return replace(config, **values)  # type: ignore[arg-type]  # all the fields used here are integers


def open_log(
    files: Files,
    config: TopicConfig = CONFIG,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clock: ManualClock | None = None,
) -> Log:
    return Log.open(
        files,
        clock or ManualClock(NOW_MS),
        DIRECTORY,
        PARTITION,
        config,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def memory_log(config: TopicConfig = CONFIG) -> Log:
    return open_log(MemoryFiles(), config)


def batch(
    *values: bytes,
    timestamps: Sequence[int] = (),
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    codec: int = 0,
) -> PreparedBatch:
    """A batch as a producer sends it."""
    times = timestamps or [NOW_MS] * len(values)
    records = [
        Record(number, time, None, value) for number, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    data = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        codec=codec,
    )
    return prepare_own_batch(data)


def sized_batch(size: int, count: int = 1, timestamp: int = NOW_MS) -> PreparedBatch:
    """A batch of `count` records with about `size` bytes of values in all."""
    return batch(*[b"v" * (size // count)] * count, timestamps=[timestamp] * count)


def idempotent(base_sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> PreparedBatch:
    values = [b"%d" % (base_sequence + number) for number in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)


def transactional(base_sequence: int, *, producer_id: int = 7, epoch: int = 0) -> PreparedBatch:
    return batch(
        b"in transaction",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def marker(*, committed: bool, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0) -> PreparedBatch:
    data = build_end_txn_marker(
        EndTxnMarker(committed, coordinator_epoch), producer_id=producer_id, producer_epoch=epoch, timestamp=NOW_MS
    )
    return prepare_own_batch(data)


def append(log: Log, prepared: PreparedBatch, leader_epoch: int = 0) -> int:
    """Append as leader; returns the base offset."""
    return log.append_as_leader(prepared, leader_epoch, NOW_MS, NOT_VERIFIED).base_offset


def fill(log: Log, count: int, size: int = 300, leader_epoch: int = 0) -> None:
    for number in range(count):
        log.append_as_leader(sized_batch(size, timestamp=NOW_MS + number), leader_epoch, NOW_MS)


def batches(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Everything that a consumer gets from `offset` on."""
    offset = log.log_start_offset if offset is None else offset
    while (region := log.read(offset, max_bytes, log.log_end_offset)) is not None:
        for header, data in split_batches(region.read()):
            yield header, data
            offset = header.next_offset


def records(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    first = log.log_start_offset if offset is None else offset
    found = [record for _, data in batches(log, offset, max_bytes) for record in iter_records(data)]
    return [record for record in found if record.offset >= first]


def offsets(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[int]:
    return [record.offset for record in records(log, offset, max_bytes)]


def segment_names(files: Files, suffix: str = ".log") -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(suffix)]
