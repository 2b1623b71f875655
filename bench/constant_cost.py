"""What an append and a read cost does not depend on what is stored: one partition at 10 MB, 1 GB and 10 GB.

CPU time of the log itself, without network: the best of several repeats, as other work on the machine only adds.
Needs 10 GB of disk; `python -m bench.constant_cost` prints a table.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from bench.process import Server
from moldau.core.clock import SystemClock
from moldau.core.ids import TopicPartition
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.records.batch import Record, build_batch
from moldau.records.crc import crc32c
from moldau.records.validate import PreparedBatch, prepare_own_batch
from moldau.testing.ports import free_ports

MB, GB = 10**6, 10**9
SIZES = (10 * MB, GB, 10 * GB)
BATCH_BYTES = 16_384
RECORDS_PER_BATCH = 16
FETCH_BYTES = 65_536
REPEATS = 15
OPERATIONS = 200
STARTS = 7
SEED = 7
PARTITION = TopicPartition("stored", 0)
CLUSTER_ID, BROKER_ID = "constantcostconstantco", 1
START_MS = 1_700_000_000_000

_TIMESTAMPS_POSITION, _CRC_POSITION, _CHECKSUMMED_POSITION = 27, 17, 21
_TIMESTAMPS, _CRC = Struct(">qq"), Struct(">I")


class Costs(NamedTuple):
    """CPU microseconds per operation."""

    append_us: float
    sequential_us: float
    by_offset_us: float
    by_timestamp_us: float


class Batches:
    """Batches of `BATCH_BYTES` that differ in their time only: each is a millisecond after the one before."""

    def __init__(self) -> None:
        size = BATCH_BYTES // RECORDS_PER_BATCH - 12
        noise = random.Random(SEED)
        records = [Record(number, START_MS, None, noise.randbytes(size)) for number in range(RECORDS_PER_BATCH)]
        self._template = bytes(build_batch(records))

    def at(self, timestamp: int) -> PreparedBatch:
        batch = bytearray(self._template)
        _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_POSITION, timestamp, timestamp)
        _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[_CHECKSUMMED_POSITION:]))
        return prepare_own_batch(batch)


@contextmanager
def stored(data: Path, config: TopicConfig) -> Iterator[Log]:
    """The log of the one partition in a data directory; closed cleanly afterwards."""
    manager = LogManager(
        RealFiles(), SystemClock(), [str(data)], config_of=lambda _: config, new_uuid=lambda: os.urandom(16)
    )
    manager.lock()
    manager.claim(BROKER_ID, CLUSTER_ID)
    manager.load()
    log = manager.get_or_create(PARTITION, b"constant cost id")
    try:
        yield log
    finally:
        manager.close({PARTITION: log.log_end_offset})


def grow(log: Log, batches: Batches, size: int) -> None:
    """Append until the log has `size` bytes."""
    while log.size_bytes < size:
        _append(log, batches)


def _append(log: Log, batches: Batches) -> None:
    now_ms = _timestamp_at(log.log_end_offset)
    log.append_as_leader(batches.at(now_ms), 0, now_ms)


def _timestamp_at(offset: int) -> int:
    return START_MS + offset // RECORDS_PER_BATCH


def measure(log: Log, batches: Batches) -> Costs:
    """Of the log as large as it is now; it grows a little by this."""
    choose = random.Random(SEED)
    return Costs(
        _cpu_us(lambda: _appending(log, batches)),
        _cpu_us(lambda: _reading_on(log)),
        _cpu_us(lambda: _reading_anywhere(log, choose)),
        _cpu_us(lambda: _finding_times(log, choose)),
    )


def _cpu_us(prepare: Callable[[], Callable[[], None]]) -> float:
    """The best of the repeats; `prepare` makes what a repeat does, outside the time."""
    best = float("inf")
    for _ in range(REPEATS):
        work = prepare()
        begun = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - begun)
    return best / OPERATIONS / 1000


def _appending(log: Log, batches: Batches) -> Callable[[], None]:
    first_ms = _timestamp_at(log.log_end_offset)
    prepared = [batches.at(first_ms + number) for number in range(OPERATIONS)]

    def work() -> None:
        for batch in prepared:
            log.append_as_leader(batch, 0, batch.header.max_timestamp)

    return work


def _reading_on(log: Log) -> Callable[[], None]:
    """A consumer near the end, `FETCH_BYTES` at a time."""
    per_fetch = FETCH_BYTES // BATCH_BYTES * RECORDS_PER_BATCH
    end = log.log_end_offset
    start = end - per_fetch * OPERATIONS // 4  # four times over what the smallest log has too

    def work() -> None:
        offset = start
        for _ in range(OPERATIONS):
            region = log.read(offset, FETCH_BYTES, end)
            if region is None:
                raise RuntimeError(f"nothing at {offset}")
            region.read()
            offset = offset + per_fetch if offset + per_fetch < end else start

    return work


def _reading_anywhere(log: Log, choose: random.Random) -> Callable[[], None]:
    """One batch at a random offset of the whole log."""
    end = log.log_end_offset
    offsets = [choose.randrange(log.log_start_offset, end) for _ in range(OPERATIONS)]

    def work() -> None:
        for offset in offsets:
            region = log.read(offset, BATCH_BYTES, end)
            if region is None:
                raise RuntimeError(f"nothing at {offset}")
            region.read()

    return work


def _finding_times(log: Log, choose: random.Random) -> Callable[[], None]:
    """The offset of a random time within the log."""
    offsets = [choose.randrange(log.log_start_offset, log.log_end_offset) for _ in range(OPERATIONS)]

    def work() -> None:
        for offset in offsets:
            found = log.offset_for_timestamp(_timestamp_at(offset))
            if found is None or found[0] != offset - offset % RECORDS_PER_BATCH:
                raise RuntimeError(f"the time of offset {offset} gave {found}")

    return work


def start_seconds(data: Path) -> float:
    """From the start of `moldau serve` on a directory that was closed cleanly to its first answer; the best of some."""
    return min(_start_once(data) for _ in range(STARTS))


def _start_once(data: Path) -> float:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moldau", "serve", "--host", "127.0.0.1", "--port", str(port), "--data", str(data)]
    with Server("moldau", Path(tempfile.mkdtemp()), port, command) as server:
        return server.start_s


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.constant_cost", description=__doc__)
    parser.add_argument("--directory", type=Path, help="where to put 10 GB (default: the temporary directory)")
    options = parser.parse_args(argv)
    data = Path(tempfile.mkdtemp(prefix="constant-cost-", dir=options.directory))
    try:
        _row(data, SIZES[0])  # warms up: the first run of anything pays for imports and caches
        rows = [_row(data, size) for size in SIZES]
    finally:
        shutil.rmtree(data)
    sys.stdout.write(_table(rows))
    return 0


class Row(NamedTuple):
    """What was measured at one size."""

    size: int
    segments: int
    costs: Costs
    start_s: float


def _row(data: Path, size: int) -> Row:
    batches = Batches()
    with stored(data, TopicConfig()) as log:
        grow(log, batches, size)
        log.sync()  # so that no append pays for writing out what was there before
        costs = measure(log, batches)
        segments = len(log.segments)
    sys.stderr.write(f"{_size(size)}: {costs}\n")
    return Row(size, segments, costs, start_seconds(data))


def _table(rows: Sequence[Row]) -> str:
    titles = ("stored", "segments", "append 16 KB", "read on, 64 KB", "read 16 KB anywhere", "find a time", "start")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for size, segments, costs, start_s in rows:
        cells = [f"{cost:.1f} us" for cost in costs]
        lines.append(f"| {_size(size)} | {segments} | {' | '.join(cells)} | {start_s * 1000:.0f} ms |")
    return "\n".join(lines) + "\n"


def _size(size: int) -> str:
    return f"{size // GB} GB" if size >= GB else f"{size // MB} MB"


if __name__ == "__main__":
    sys.exit(main())
