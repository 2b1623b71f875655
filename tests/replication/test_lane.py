"""The short way of an append and the long one: the same batches leave the same log behind, and the same errors."""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.index import TimeIndex
from moldau.log.log import AppendResult, Log
from moldau.log.snapshots import render_snapshot
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import BATCH_HEADER_BYTES, CRC_START, Record, build_batch
from moldau.records.crc import crc32c
from moldau.records.validate import COMPRESSED_RECORDS_MAX, RECORD_BYTES_MIN
from moldau.replication.lane import Lane
from moldau.replication.partition import Partition
from tests.log.helpers import DIRECTORY, NOW_MS, open_log, small_segments

LEADER_EPOCH = 4
VERSION = 13
ACKS_ALL = -1
STEPS = 400
LAST_OFFSET_DELTA_POSITION = 23
RECORD_COUNT_POSITION = 57

CONFIGS = {
    "plain": small_segments(1 << 20),
    "small segments": small_segments(3000),
    "small batches": small_segments(1 << 20, max_message_bytes=300),
    "few timestamps": small_segments(
        1 << 20, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000
    ),
    "few index entries": small_segments(1 << 20, segment_index_bytes=80 * TimeIndex.ENTRY_BYTES),
    "short-lived segments": small_segments(1 << 20, segment_ms=20),
    "append time": replace(small_segments(1 << 20), message_timestamp_type="LogAppendTime"),
    "compacted": replace(small_segments(1 << 20), cleanup_policy=frozenset({"compact"})),
    "own codec": replace(small_segments(1 << 20), compression_type="lz4"),
}


class Way:
    """A partition over files in memory."""

    def __init__(self, config: TopicConfig, *, is_short: bool) -> None:
        self.files = MemoryFiles()
        self._is_short = is_short
        self._appends = 0
        self.partition = Partition(b"i" * 16, open_log(self.files, config), LEADER_EPOCH, [1], broker_id=1)

    def append(self, batch: bytes, now_ms: int) -> AppendResult | tuple[int, str]:
        """What becomes of a batch."""
        try:
            if not self._is_short:
                return self.partition.append(batch, VERSION, ACKS_ALL, now_ms)
            self._appends += 1
            sent = b"before" + batch + b"after"
            frame = memoryview(bytearray(sent) if self._appends % 2 else sent)  # may be written to or not
            offset = self.partition.lane.append(frame, 6, 6 + len(batch), now_ms)
            assert (bytes(frame[:6]), bytes(frame[6 + len(batch) :])) == (b"before", b"after")
            if offset is None:
                assert frame == sent
                return self.partition.append(frame[6 : 6 + len(batch)], VERSION, ACKS_ALL, now_ms)
            return AppendResult(offset, self.partition.log.log_end_offset - 1, -1, False)
        except ApiError as error:
            return int(error.code), str(error)

    def state(self) -> tuple[object, ...]:
        """All that an append may change."""
        log, active = self.partition.log, self.partition.log.segments.active
        active.settle()
        files = {name: self.files.read(f"{DIRECTORY}/{name}") for name in self.files.list(DIRECTORY)}
        tails = (bytes(active.index.entries.tail), bytes(active.time_index.entries.tail))
        times = (active.max_timestamp, active.offset_of_max_timestamp, active.first_timestamp)
        seen = [entry.last_seen_ms for entry in log.producers]
        counts = (log.log_end_offset, log.size_bytes, active.size, self.partition.high_watermark)
        return files, tails, times, render_snapshot(log.producers), seen, counts, log.failure is None


class Sender:
    """Producers that mostly do what they should."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._next: dict[int, tuple[int, int]] = {7: (0, 0), 8: (0, (1 << 31) - 8), 9: (3, 0)}
        self._before = dict(self._next)

    def batch(self, now_ms: int) -> bytes:
        dice, count = self._dice, self._dice.randrange(1, 6)
        first = now_ms + dice.choice((0, 0, 0, 0, -5000, 5000, 30, -1 - now_ms))
        records = [
            Record(number, first + number, dice.choice((None, b"k")), b"v" * dice.randrange(80))
            for number in range(count)
        ]
        codec = dice.choice((0, 0, 0, 1, 3, 4))
        if dice.random() < 0.3:
            return build_batch(records, codec=codec)
        self._before = dict(self._next)
        producer_id = dice.choice(tuple(self._next))
        epoch, sequence = self._next[producer_id]
        if dice.random() < 0.1:
            epoch, sequence = dice.choice(((epoch + 1, 0), (epoch, sequence ^ 1), (epoch - 1, 0), (epoch, 0)))
        self._next[producer_id] = (epoch, (sequence + count) & 0x7FFFFFFF)
        return build_batch(
            records, codec=codec, producer_id=producer_id, producer_epoch=max(epoch, 0), base_sequence=sequence
        )

    def lying(self, batch: bytes) -> bytes:
        """Says more or fewer records than it has, and perhaps more than it could have."""
        dice, changed = self._dice, bytearray(batch)
        fit = (len(batch) - BATCH_HEADER_BYTES) // RECORD_BYTES_MIN
        most = COMPRESSED_RECORDS_MAX
        count = dice.choice((1, fit, fit + 1, most, most + 1, (1 << 31) - 1))
        struct.pack_into(">i", changed, LAST_OFFSET_DELTA_POSITION, count - 1)
        struct.pack_into(">i", changed, RECORD_COUNT_POSITION, count)
        struct.pack_into(">I", changed, CRC_START - 4, crc32c(bytes(changed[CRC_START:])))
        return bytes(changed)

    def refused(self) -> None:
        """The last batch was not taken: what comes next has its sequence."""
        self._next = self._before

    def broken(self, batch: bytes) -> bytes:
        """One byte or the length is another; the checksum is right or not."""
        dice, changed = self._dice, bytearray(batch)
        position = dice.choice((CRC_START, CRC_START + 1, dice.randrange(min(len(batch), 70))))  # attributes, anything
        changed[position] = dice.choice((0, 1, 2, 0x10, 0x20, 0x7F, 0x80, 0xFF))
        if dice.random() < 0.5:
            struct.pack_into(">I", changed, CRC_START - 4, crc32c(bytes(changed[CRC_START:])))
        if dice.random() < 0.2:
            del changed[dice.randrange(len(changed)) :]
        return bytes(changed)


@pytest.mark.parametrize("name", CONFIGS)
def test_both_ways_leave_the_same_log_behind(name: str, seeded: Random) -> None:
    ways = [Way(CONFIGS[name], is_short=is_short) for is_short in (True, False)]
    sender, now_ms, last = Sender(seeded), NOW_MS, b""
    for _ in range(STEPS):
        now_ms += seeded.randrange(3)
        batch = last if last and seeded.random() < 0.05 else sender.batch(now_ms)
        last = batch
        if seeded.random() < 0.15:
            batch = sender.broken(batch)
        elif seeded.random() < 0.05:
            batch = sender.lying(batch)
        if seeded.random() < 0.02:
            for way in ways:
                way.files.fail_next_append()  # the disk is full for a moment
        short, long = (way.append(batch, now_ms) for way in ways)
        assert short == long, batch.hex()
        if not isinstance(short, AppendResult):
            sender.refused()
        assert ways[0].state() == ways[1].state()


def test_a_plain_batch_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    append = Lane.append

    def noted(lane: Lane, frame: memoryview, start: int, stop: int, now_ms: int) -> int | None:
        results.append(append(lane, frame, start, stop, now_ms))
        return results[-1]

    monkeypatch.setattr(Lane, "append", noted)
    way = Way(CONFIGS["plain"], is_short=True)
    for number in range(5):
        record = Record(0, NOW_MS, None, b"v")
        way.append(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=number), NOW_MS)
    first_two, others = results[:2], results[2:]
    assert first_two == [None, None]  # a new segment, whose age is not known yet; a new producer
    assert others == [2, 3, 4]


def _read(log: Log, offset: int, up_to_offset: int, max_bytes: int = 1 << 20) -> bytes:
    region = log.read(offset, max_bytes, up_to_offset)
    assert region is not None
    return region.read()


LOOKS: dict[str, Callable[[Log], object]] = {
    "at each offset": lambda log: [_read(log, offset, log.log_end_offset, 1) for offset in range(20)],
    "for the end": lambda log: _read(log, 0, 13),
    "for times": lambda log: [log.offset_for_timestamp(NOW_MS + number) for number in range(21)],
    "for the latest": Log.offset_of_max_timestamp,
    "after a cut": lambda log: (log.truncate_to(11), _read(log, 0, 11), log.offset_of_max_timestamp()),
    "after a new segment": lambda log: (log.roll(NOW_MS).size, log.offset_of_max_timestamp(), _read(log, 9, 20)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_finds_what_went_the_short_way(look: str) -> None:
    ways = [Way(small_segments(1 << 20, index_interval_bytes=1), is_short=is_short) for is_short in (True, False)]
    for number in range(20):
        batch = build_batch([Record(0, NOW_MS + number, None, b"v" * 100)])
        for way in ways:
            way.append(batch, NOW_MS)
    assert ways[0].partition.log.segments.active.unsettled
    short, long = (LOOKS[look](way.partition.log) for way in ways)
    assert short == long
    assert ways[0].state() == ways[1].state()


def test_settings_that_change_are_heeded() -> None:
    ways = [Way(CONFIGS["plain"], is_short=is_short) for is_short in (True, False)]
    batch = build_batch([Record(0, NOW_MS, None, b"v" * 200)])
    for config in ("plain", "plain", "small batches", "append time", "plain", "plain"):
        for way in ways:
            way.partition.configure(CONFIGS[config])
        short, long = (way.append(batch, NOW_MS) for way in ways)
        assert short == long
    assert ways[0].state() == ways[1].state()


def test_a_partition_that_is_led_elsewhere_takes_nothing() -> None:
    way = Way(CONFIGS["plain"], is_short=True)
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    assert all(isinstance(way.append(batch, NOW_MS), AppendResult) for _ in range(3))
    way.partition.resign()
    assert not isinstance(way.append(batch, NOW_MS), AppendResult)
    assert way.partition.log.log_end_offset == 3


def test_a_plain_batch_of_a_producer_whose_transaction_is_open_is_refused() -> None:
    way = Way(CONFIGS["plain"], is_short=True)
    producer = partial(build_batch, [Record(0, NOW_MS, None, b"v")], producer_id=7, producer_epoch=0)
    guard = way.partition.begin_verification(7, 0, 0, NOW_MS, bumps_epoch=True)
    way.partition.append(producer(base_sequence=0, is_transactional=True), VERSION, ACKS_ALL, NOW_MS, guard=guard)
    for _ in range(2):  # in a frame that may be written to, and in one that may not
        refused = way.append(producer(base_sequence=1), NOW_MS)
        assert refused[0] == ErrorCode.INVALID_TXN_STATE
    assert way.partition.log.log_end_offset == 1
