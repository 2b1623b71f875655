"""Helpers for tests of compaction: a log with keys, and cleaning it as the broker does."""

from moldau.core.files import Files
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.compaction.cleaner import clean
from moldau.log.compaction.job import (
    CleanResult,
    remove_strays,
)
from moldau.log.compaction.policy import Cleanable, clean_job, cleanable
from moldau.log.log import Log
from moldau.records.batch import (
    BatchHeader,
    Record,
    build_batch,
    iter_records,
)
from moldau.records.validate import prepare_own_batch
from tests.log.helpers import (
    NOW_MS,
    append,
    batches,
    open_log,
)

SUFFIX = ".1.cleaned"
RETENTION_MS = 1000
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1 << 20,
    index_interval_bytes=64,
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
)

Pair = tuple[bytes | None, bytes | None]


def new_log(config: TopicConfig = CONFIG) -> tuple[MemoryFiles, Log]:
    files = MemoryFiles()
    files.now_ms = NOW_MS
    return files, open_log(files, config)


def put(
    log: Log,
    *pairs: Pair,
    codec: int = 0,
    producer: tuple[int, int] | None = None,
    epoch: int = 0,
    timestamp: int = NOW_MS,
) -> int:
    """Append one batch of keys and values; `producer` is its id and sequence number, in a transaction."""
    rows = [Record(number, timestamp + number, key, value) for number, (key, value) in enumerate(pairs)]
    if producer is None:
        data = build_batch(rows, codec=codec)
    else:
        data = build_batch(
            rows,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=epoch,
            base_sequence=producer[1],
            is_transactional=True,
        )
    return append(log, prepare_own_batch(data))


def due(log: Log, now_ms: int = NOW_MS) -> Cleanable:
    return cleanable(log, log.last_stable_offset, now_ms)


def compact(files: Files, log: Log, now_ms: int = NOW_MS, keys_max: int = 1 << 20) -> CleanResult:
    """Clean everything below the end of the log and swap it in, as the broker does."""
    log.roll(now_ms)
    job = clean_job(due(log, now_ms), now_ms=now_ms, keys_max=keys_max, suffix=SUFFIX)
    result = clean(files, job)
    remove_strays(files, job)
    for group in result.groups:
        assert log.stage_segment(job, group)
        files.sync_directory(log.directory)
        assert log.replace_segments(job, group)
    log.clean_offset = result.clean_offset
    files.sync_directory(log.directory)
    return result


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found = [
        record for header, data in batches(log) if not header.is_control for record in iter_records(data)
    ]  # fmt: skip
    return [(record.offset, record.key, record.value) for record in found]


def headers(log: Log) -> list[BatchHeader]:
    return [header for header, _ in batches(log)]
