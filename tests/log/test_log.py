"""A log from its users' side: append, read, find by time, cut, fail."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.clock import ManualClock
from moldau.core.files import FileRegion
from moldau.core.memory_files import MemoryFiles
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.leader_epochs import EpochStart
from moldau.log.log import AppendResult, Log
from moldau.log.txn_index import AbortedTxn
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import Record, build_batch, read_header, split_batches
from moldau.records.validate import prepare_own_batch
from tests.log.helpers import (
    CONFIG,
    DIRECTORY,
    NOW_MS,
    PARTITION,
    append,
    batch,
    batches,
    fill,
    idempotent,
    marker,
    memory_log,
    offsets,
    open_log,
    records,
    segment_names,
    sized_batch,
    small_segments,
    transactional,
)
from tests.selection import examples

ALL = 1 << 30


def error_of(call: object) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        call()  # type: ignore[operator]  # a lambda; pytest.raises wants the call inside
    return ErrorCode(refusal.value.code)


# Appending


def test_offsets_are_given_without_gaps() -> None:
    log = memory_log()
    assert log.append_as_leader(batch(b"a", b"b", b"c"), 0, NOW_MS) == AppendResult(0, 2, -1, False)
    assert log.append_as_leader(batch(b"d"), 0, NOW_MS) == AppendResult(3, 3, -1, False)
    assert (log.log_start_offset, log.log_end_offset) == (0, 4)
    assert [record.value for record in records(log)] == [b"a", b"b", b"c", b"d"]


def test_the_batch_is_stored_as_it_was_sent_but_for_offset_and_leader_epoch() -> None:
    log = memory_log()
    append(log, batch(b"first"))
    sent = batch(b"a", b"b", codec=1)
    append(log, sent, leader_epoch=9)
    region = log.read(1, ALL, 3)
    assert region is not None
    stored = region.read()
    assert read_header(stored).base_offset == 1
    assert read_header(stored).partition_leader_epoch == 9
    assert stored[16:] == bytes(sent.body)
    split_batches(stored)


def test_log_append_time_is_reported() -> None:
    log = memory_log()
    data = build_batch([Record(0, 5, None, b"x")], log_append_time_ms=NOW_MS + 1)
    assert log.append_as_leader(prepare_own_batch(data), 0, NOW_MS).log_append_time == NOW_MS + 1


def test_a_batch_sent_again_is_answered_with_its_first_offset_and_not_stored() -> None:
    log = memory_log()
    append(log, idempotent(0, 3))
    append(log, idempotent(3, 2))
    size = log.size_bytes
    assert log.append_as_leader(idempotent(0, 3), 0, NOW_MS) == AppendResult(0, 2, NOW_MS, True)
    assert (log.log_end_offset, log.size_bytes) == (5, size)


def test_a_batch_out_of_order_is_refused_and_not_stored() -> None:
    log = memory_log()
    append(log, idempotent(0))
    assert error_of(lambda: append(log, idempotent(5))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1
    append(log, idempotent(1))


def test_a_new_leader_epoch_is_noted_where_it_starts() -> None:
    log = memory_log()
    append(log, batch(b"a"), leader_epoch=2)
    append(log, batch(b"b"), leader_epoch=2)
    append(log, batch(b"c"), leader_epoch=5)
    assert log.leader_epochs.entries() == (EpochStart(2, 0), EpochStart(5, 2))
    assert log.epoch_end_offset(2) == (2, 2)
    assert log.epoch_end_offset(5) == (5, 3)


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit() -> None:
    files = MemoryFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 5, size=300)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert segment_names(files) == [f"{base:020d}.log" for base in (0, 2, 4)]
    assert segment_names(files, ".snapshot") == [f"{base:020d}.snapshot" for base in (2, 4)]
    assert all(segment.size <= 1000 for segment in log.segments)
    assert offsets(log) == list(range(5))


def test_a_segment_is_rolled_by_the_age_of_its_records() -> None:
    log = memory_log(small_segments(1 << 20, segment_ms=1000))
    append(log, sized_batch(10, timestamp=NOW_MS))
    append(log, sized_batch(10, timestamp=NOW_MS + 1000))
    assert len(log.segments) == 1
    append(log, sized_batch(10, timestamp=NOW_MS + 1001))
    assert len(log.segments) == 2


def test_records_without_time_age_with_the_segment() -> None:
    log = memory_log(small_segments(1 << 20, segment_ms=1000))
    log.append_as_leader(sized_batch(10, timestamp=-1), 0, NOW_MS)
    log.append_as_leader(sized_batch(10, timestamp=-1), 0, NOW_MS + 1000)
    assert len(log.segments) == 1
    log.append_as_leader(sized_batch(10, timestamp=-1), 0, NOW_MS + 1001)
    assert len(log.segments) == 2


def test_jitter_makes_a_segment_roll_earlier_but_not_at_once() -> None:
    log = memory_log(small_segments(1 << 20, segment_ms=1000, segment_jitter_ms=500))
    append(log, sized_batch(10, timestamp=NOW_MS))
    append(log, sized_batch(10, timestamp=NOW_MS + 500))
    assert len(log.segments) == 1
    append(log, sized_batch(10, timestamp=NOW_MS + 1001))
    assert len(log.segments) == 2


def test_an_idle_segment_is_rolled_when_it_is_due() -> None:
    log = memory_log(small_segments(1 << 20, segment_ms=1000))
    assert not log.roll_if_due(NOW_MS + 5000)
    append(log, sized_batch(10, timestamp=NOW_MS))
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)
    assert not log.roll_if_due(NOW_MS + 5000)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_full_index_rolls_the_segment() -> None:
    log = memory_log(small_segments(1 << 20, segment_index_bytes=60))
    fill(log, 20)
    assert len(log.segments) > 2
    assert all(len(segment.index.entries) * 12 <= 60 for segment in log.segments)
    assert offsets(log) == list(range(20))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = memory_log(small_segments(1000))
    assert error_of(lambda: append(log, sized_batch(2000))) == ErrorCode.RECORD_LIST_TOO_LARGE
    append(log, sized_batch(100))
    assert error_of(lambda: append(log, sized_batch(2000))) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 1


# Following


def as_sent_by(leader: Log, offset: int = 0) -> bytes:
    return b"".join(data for _, data in batches(leader, offset))


def test_a_follower_becomes_a_copy_of_the_leader() -> None:
    leader = memory_log(small_segments(1000))
    append(leader, transactional(0), leader_epoch=1)
    append(leader, marker(committed=False), leader_epoch=1)
    for number in range(10):
        append(leader, idempotent(number, producer_id=9), leader_epoch=2 + number // 5)
    follower = memory_log(small_segments(1000))
    assert follower.append_as_follower(as_sent_by(leader), NOW_MS) == leader.size_bytes == follower.size_bytes
    assert follower.log_end_offset == 12
    assert as_sent_by(follower) == as_sent_by(leader)
    assert follower.leader_epochs.entries() == leader.leader_epochs.entries()
    assert follower.aborted_transactions(0, 100) == leader.aborted_transactions(0, 100) == [AbortedTxn(7, 0, 1, 2)]
    assert follower.append_as_leader(idempotent(9, producer_id=9), 4, NOW_MS).duplicate


def test_a_batch_cut_off_in_the_answer_is_left_for_the_next() -> None:
    leader, follower = memory_log(), memory_log()
    fill(leader, 3)
    data = as_sent_by(leader)
    follower.append_as_follower(data[:-1], NOW_MS)
    assert follower.log_end_offset == 2
    assert follower.append_as_follower(data[:10], NOW_MS) == 0


def test_a_follower_refuses_offsets_that_it_has() -> None:
    leader, follower = memory_log(), memory_log()
    fill(leader, 3)
    follower.append_as_follower(as_sent_by(leader), NOW_MS)
    assert error_of(lambda: follower.append_as_follower(as_sent_by(leader, 2), NOW_MS)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_refuses_a_broken_batch_and_stores_nothing_of_the_answer() -> None:
    leader, follower = memory_log(), memory_log()
    fill(leader, 3)
    data = bytearray(as_sent_by(leader))
    data[-1] ^= 1
    assert error_of(lambda: follower.append_as_follower(data, NOW_MS)) == ErrorCode.CORRUPT_MESSAGE
    assert follower.log_end_offset == 0


def test_a_gap_in_offsets_is_read_over() -> None:
    log = memory_log(small_segments(500))
    for base_offset in (0, 10, 11, 5_000_000_000):
        data = build_batch([Record(base_offset, NOW_MS, None, b"v" * 300)], leader_epoch=0)
        log.append_as_follower(data, NOW_MS)
    assert offsets(log) == [0, 10, 11, 5_000_000_000]
    assert offsets(log, 3) == [10, 11, 5_000_000_000]
    assert offsets(log, 12) == [5_000_000_000]


# Reading


@pytest.fixture
def thirty() -> Log:
    """Thirty batches of three records over several segments."""
    log = memory_log(small_segments(3000))
    for number in range(30):
        append(log, sized_batch(300, 3, timestamp=NOW_MS + number))
    return log


def test_a_reader_may_start_at_any_offset(thirty: Log) -> None:
    for offset in range(90):
        assert offsets(thirty, offset) == list(range(offset, 90))


def test_a_region_starts_with_the_batch_that_holds_the_offset(thirty: Log) -> None:
    region = thirty.read(4, ALL, 90)
    assert region is not None
    assert read_header(region.read()).base_offset == 3


def test_outside_of_the_log_is_out_of_range(thirty: Log) -> None:
    thirty.advance_log_start(10)
    for offset in (-1, 9, 91):
        assert error_of(lambda at=offset: thirty.read(at, ALL, 90)) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_end_of_the_log_has_nothing_yet(thirty: Log) -> None:
    assert thirty.read(90, ALL, 90) is None
    assert thirty.read(60, ALL, 60) is None
    assert thirty.read(70, ALL, 60) is None


@pytest.mark.parametrize("limit", [3, 33, 60, 87])
def test_nothing_at_or_above_the_limit_is_read(thirty: Log, limit: int) -> None:
    offset = 0
    while (region := thirty.read(offset, ALL, limit)) is not None:
        offset = split_batches(region.read())[-1][0].next_offset
    assert offset == limit


def region_of(log: Log, offset: int, max_bytes: int, *, min_one_batch: bool) -> FileRegion | None:
    return log.read(offset, max_bytes, log.log_end_offset, min_one_batch)


def test_only_whole_batches_within_max_bytes_are_read(thirty: Log) -> None:
    size = thirty.segments.first.size // len(list(thirty.segments.first.headers()))
    for max_bytes in range(size, 4 * size):
        region = region_of(thirty, 0, max_bytes, min_one_batch=True)
        assert region is not None
        assert len(region) <= max_bytes < len(region) + size
        split_batches(region.read())


def test_a_first_batch_larger_than_max_bytes_is_read_if_asked_for(thirty: Log) -> None:
    region = region_of(thirty, 5, 1, min_one_batch=True)
    assert region is not None
    assert len(split_batches(region.read())) == 1
    assert region_of(thirty, 5, 1, min_one_batch=False) is None
    assert region_of(thirty, 5, 0, min_one_batch=False) is None


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 4)), min_size=1, max_size=60),
    segment_bytes=st.integers(1200, 6000),
    restart=st.booleans(),
    data=st.data(),
)
def test_any_read_gives_the_batches_that_were_appended(
    sizes: list[tuple[int, int]], segment_bytes: int, restart: bool, data: st.DataObject
) -> None:
    files = MemoryFiles()
    config = small_segments(segment_bytes)
    log = open_log(files, config)
    bases = [append(log, sized_batch(size, count)) for size, count in sizes]
    if restart:
        log.close()
        log = open_log(files, config)
    end = log.log_end_offset
    for _ in range(10):
        offset, limit = data.draw(st.integers(0, end)), data.draw(st.sampled_from([*bases, end]))
        region = log.read(offset, data.draw(st.integers(0, 5000)), limit)
        if offset >= limit:
            assert region is None
            continue
        assert region is not None
        found = [header.base_offset for header, _ in split_batches(region.read())]
        first = max(base for base in bases if base <= offset)
        assert found == bases[bases.index(first) : bases.index(first) + len(found)]
        assert all(base < limit for base in found)


def test_sequential_reads_do_not_look_at_the_index() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 20)
    end = log.log_end_offset
    files.rename(f"{DIRECTORY}/{0:020d}.index", f"{DIRECTORY}/hidden")
    for offset in range(end):
        append(log, sized_batch(100))
        assert log.read(log.log_end_offset - 1, ALL, log.log_end_offset) is not None
        assert log.read(end + offset, ALL, log.log_end_offset) is not None


def test_only_a_few_old_segments_stay_open() -> None:
    log = memory_log(small_segments(600))
    fill(log, 40)
    offsets(log)
    assert sum(segment.is_open for segment in log.segments) <= 5
    log.delete_expired(NOW_MS, log.log_end_offset)
    assert [segment.is_open for segment in log.segments] == [False] * (len(log.segments) - 1) + [True]


# Time


def test_the_first_record_not_older_than_a_time_is_found() -> None:
    log = memory_log(small_segments(1500))
    times = [10, 20, 15, 40, 30, 30, 70, 60, 80]
    for number in range(0, 9, 3):
        values = [b"v" * 200] * 3
        append(log, batch(*values, timestamps=times[number : number + 3]), leader_epoch=number)
    for asked in range(82):
        expected = next((number for number, time in enumerate(times) if time >= asked), None)
        found = log.offset_for_timestamp(asked)
        assert (found.offset if found else None) == expected
        if found is not None:
            assert (found.timestamp, found.leader_epoch) == (times[found.offset], found.offset // 3 * 3)


@settings(max_examples=examples(40), deadline=None)
@given(times=st.lists(st.integers(0, 50), min_size=1, max_size=120), restart=st.booleans())
def test_times_in_any_order_are_found(times: list[int], restart: bool) -> None:
    files = MemoryFiles()
    config = small_segments(2000)
    log = open_log(files, config)
    for time in times:
        append(log, sized_batch(120, timestamp=time))
    if restart:
        log.close()
        log = open_log(files, config)
    for asked in range(0, 55, 3):
        expected = next((number for number, time in enumerate(times) if time >= asked), None)
        found = log.offset_for_timestamp(asked)
        assert (found.offset if found else None) == expected
    youngest = log.offset_of_max_timestamp()
    assert youngest is not None
    assert youngest.timestamp == max(times)
    assert youngest.offset == times.index(max(times))


def test_records_below_the_start_are_not_found_by_time() -> None:
    log = memory_log()
    append(log, batch(b"a", b"b", b"c", timestamps=[10, 20, 30]))
    log.advance_log_start(1)
    found = log.offset_for_timestamp(5)
    assert found is not None
    assert found.offset == 1


def test_an_empty_log_has_no_time() -> None:
    log = memory_log()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


# Transactions


def test_the_stable_offset_stands_at_the_first_open_transaction() -> None:
    log = memory_log()
    append(log, batch(b"x"))
    append(log, transactional(0))
    append(log, batch(b"y"))
    assert log.last_stable_offset == 1
    append(log, marker(committed=True))
    assert log.last_stable_offset == 4
    assert log.last_stable_offset_below(3) == 1
    assert log.last_stable_offset_below(4) == 4
    assert log.aborted_transactions(0, 4) == []


def test_aborted_transactions_of_a_range_are_listed() -> None:
    log = memory_log(small_segments(300))
    for sequence in range(6):
        append(log, transactional(sequence))
        append(log, marker(committed=False))
    assert len(log.segments) > 3
    assert [aborted.first_offset for aborted in log.aborted_transactions(3, 8)] == [2, 4, 6]
    assert [aborted.first_offset for aborted in log.aborted_transactions(0, 100)] == [0, 2, 4, 6, 8, 10]


# Cutting


def test_the_start_moves_forward_only() -> None:
    log = memory_log()
    fill(log, 5)
    assert log.advance_log_start(3)
    assert not log.advance_log_start(2)
    assert log.log_start_offset == 3
    assert offsets(log) == [3, 4]


@pytest.mark.parametrize("target", [0, 1, 7, 20, 44, 45, 59])
def test_a_truncated_log_goes_on_at_the_cut(target: int) -> None:
    files = MemoryFiles()
    config = small_segments(3000)
    log = open_log(files, config)
    for number in range(60):
        append(log, idempotent(number // 2) if number % 2 else sized_batch(200), leader_epoch=number // 10)
    assert log.truncate_to(target)
    assert log.log_end_offset == target
    assert log.leader_epochs.latest == (target - 1) // 10
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    append(log, batch(b"new"), leader_epoch=9)
    assert offsets(log) == list(range(target + 1))
    log.close()
    again = open_log(files, config)
    assert offsets(again) == list(range(target + 1))
    assert again.leader_epochs.entries() == log.leader_epochs.entries()


def test_truncation_forgets_sequences_above_the_cut() -> None:
    log = memory_log(small_segments(500))
    for number in range(20):
        append(log, idempotent(number))
    log.truncate_to(10)
    assert error_of(lambda: append(log, idempotent(20))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(idempotent(9), 0, NOW_MS).duplicate
    assert append(log, idempotent(10)) == 10


def test_truncation_above_the_end_does_nothing() -> None:
    log = memory_log()
    fill(log, 3)
    assert not log.truncate_to(3)
    assert offsets(log) == [0, 1, 2]


def test_truncation_below_the_start_starts_over() -> None:
    log = memory_log(small_segments(600))
    fill(log, 10)
    log.advance_log_start(8)
    log.delete_expired(NOW_MS, 10)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)


def test_a_log_may_start_over_anywhere() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 5)
    append(log, idempotent(0))
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert len(log.producers) == 0
    assert append(log, batch(b"x")) == 1000
    log.close()
    assert offsets(open_log(files)) == [1000]


def test_a_region_outlives_the_segment_it_is_in() -> None:
    log = memory_log(small_segments(600))
    fill(log, 10)
    region = log.read(0, ALL, 10)
    assert region is not None
    log.truncate_fully_and_start_at(0)
    log.remove_doomed(NOW_MS + 10**9)
    split_batches(region.read())


# Durability and failures


def test_what_was_synced_survives_power_loss() -> None:
    files = MemoryFiles()
    config = small_segments(1000)
    log = open_log(files, config)
    fill(log, 7)
    assert log.sync() == log.recovery_point == 7
    fill(log, 3)
    files.power_loss()
    again = open_log(files, config, clean=False, recovery_point=0)
    assert offsets(again) == list(range(7))


def test_full_segments_can_be_synced_alone() -> None:
    log = memory_log(small_segments(1000))
    fill(log, 7)
    assert log.sync(sealed_only=True) == log.segments.active.base_offset
    assert log.sync() == 7


def test_a_sync_with_nothing_new_touches_no_file() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 3)
    log.sync()
    syncs = files.syncs
    assert log.sync() == 3
    assert files.syncs == syncs


def test_a_thread_syncs_while_the_loop_appends_rolls_and_drops(tmp_path: Path) -> None:
    directory = f"{tmp_path}/events-3"
    config = small_segments(2000, retention_bytes=6000)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), directory, PARTITION, config)
    done = threading.Event()
    durable: list[int] = []

    def sync_until_done() -> None:
        while not done.is_set():
            durable.append(log.sync(sealed_only=len(durable) % 3 == 0))

    with ThreadPoolExecutor(1) as threads:
        syncing = threads.submit(sync_until_done)
        for number in range(600):
            append(log, idempotent(number))
            if number % 50 == 0:
                log.delete_expired(NOW_MS, log.log_end_offset)
        done.set()
        syncing.result()
    assert durable == sorted(durable)
    assert log.sync() == 600
    assert log.failure is None
    again = Log.open(RealFiles(), ManualClock(NOW_MS), directory, PARTITION, config, clean=False, recovery_point=600)
    assert again.log_end_offset == 600


def test_a_log_that_had_grown_ahead_when_it_crashed_ends_with_its_last_batch(tmp_path: Path) -> None:
    directory = f"{tmp_path}/events-3"
    log = Log.open(RealFiles(lambda *_: None), ManualClock(NOW_MS), directory, PARTITION, TopicConfig())
    fill(log, 140, size=8000)
    file = Path(directory, f"{0:020d}.log")
    assert file.stat().st_size > log.size_bytes
    again = Log.open(RealFiles(), ManualClock(NOW_MS), directory, PARTITION, TopicConfig(), clean=False)
    assert (again.log_end_offset, again.size_bytes) == (140, log.size_bytes)
    assert file.stat().st_size == log.size_bytes


def test_a_failed_sync_takes_the_log_offline_for_good() -> None:
    files = MemoryFiles()
    told: list[int | None] = []
    log = open_log(files)
    log.on_failure = lambda _, error: told.append(error.errno)
    fill(log, 3)
    files.fail_next_sync()
    assert error_of(log.sync) == ErrorCode.KAFKA_STORAGE_ERROR
    assert told == [errno.EIO]
    for call in (log.sync, lambda: append(log, batch(b"x")), lambda: log.read(0, ALL, 3)):
        assert error_of(call) == ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(lambda: log.offset_for_timestamp(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    assert told == [errno.EIO]


def test_a_failed_write_takes_the_log_offline() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 3)
    files.fail_next_append(errno.EIO)
    assert error_of(lambda: fill(log, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(lambda: log.read(0, ALL, 3)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_refuses_the_append_and_leaves_the_log_as_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log, idempotent(0))
    files.fail_next_append(errno.ENOSPC)
    assert error_of(lambda: append(log, idempotent(1))) == ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets(log) == [0]
    assert append(log, idempotent(1)) == 1
    assert offsets(log) == [0, 1]


def test_a_full_disk_while_rolling_leaves_the_log_as_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 2)
    files.fail_next_append(errno.ENOSPC)
    assert error_of(lambda: fill(log, 1)) == ErrorCode.KAFKA_STORAGE_ERROR
    fill(log, 1)
    assert offsets(log) == [0, 1, 2]
    assert len(log.segments) == 2


def test_a_deleted_log_cannot_be_used() -> None:
    log = memory_log()
    log.retire()
    assert error_of(lambda: append(log, batch(b"x"))) == ErrorCode.KAFKA_STORAGE_ERROR


# Configuration


def test_a_new_configuration_takes_effect_with_the_next_append() -> None:
    log = memory_log()
    fill(log, 5)
    log.config = replace(CONFIG, segment_bytes=1000)
    fill(log, 1)
    assert len(log.segments) == 2


def test_the_topic_id_is_kept_in_the_directory() -> None:
    files = MemoryFiles()
    topic_id = bytes(range(16))

    def opened(given_id: bytes | None) -> Log:
        partition = memory_log().topic_partition
        return Log.open(files, ManualClock(), DIRECTORY, partition, TopicConfig(), topic_id=given_id)

    assert opened(None).topic_id is None
    assert opened(topic_id).topic_id == topic_id
    assert opened(None).topic_id == topic_id
