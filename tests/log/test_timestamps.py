"""A search by time is exact where headers are honest, bounded where they are not, and right while the log changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log import timestamps
from moldau.log.log import Log
from moldau.log.timestamps import MaxTimestampSearch, RecordsLeft, TimestampSearch, timestamp_at
from moldau.records.batch import Record, build_batch
from moldau.records.compression import Codec
from moldau.records.validate import prepare_own_batch
from tests.log.helpers import NOW_MS, append, batch, memory_log, small_segments
from tests.records.hostile import many_records
from tests.selection import examples


def compressed(times: list[int], codec: int, *, append_time: int | None = None) -> bytes:
    records = [Record(index, time, None, b"v" * 30) for index, time in enumerate(times)]
    return build_batch(records, codec=codec, log_append_time_ms=append_time)


def found_at(log: Log, asked: int) -> int | None:
    found = log.offset_for_timestamp(asked)
    return None if found is None else found.offset


@settings(max_examples=examples(40))
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.sampled_from(list(Codec))), min_size=1
    ),
    start=st.integers(0, 10),
    at_once=st.sampled_from([1, 2, 1000]),
)
def test_compressed_batches_are_searched_to_the_record(
    batches: list[tuple[list[int], int]], start: int, at_once: int
) -> None:
    log = memory_log(small_segments(1000))
    for times, codec in batches:
        append(log, prepare_own_batch(compressed(times, codec)))
    log.advance_log_start(start)
    flat = [time for times, _ in batches for time in times]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timestamps, "HEADERS_AT_ONCE", at_once)
        for asked in range(0, 55, 3):
            expected = next((number for number, time in enumerate(flat) if number >= start and time >= asked), None)
            assert found_at(log, asked) == expected


def test_the_log_append_time_of_a_batch_is_that_of_its_records() -> None:
    log = memory_log()
    for time in (10, 20):
        append(log, prepare_own_batch(compressed([1, 2, 3], Codec.GZIP, append_time=time)))
    assert [found_at(log, asked) for asked in (5, 10, 11, 21)] == [0, 0, 3, None]


def test_a_batch_that_promises_too_much_is_passed_over() -> None:
    log = memory_log()
    append(log, prepare_own_batch(many_records(10, timestamp=1, max_timestamp=100)))
    append(log, batch(b"honest", timestamps=[60]))
    assert found_at(log, 50) == 10


def test_no_more_records_are_looked_at_than_a_request_may() -> None:
    """Behind the budget a header is believed, and the answer is not behind the record that was asked for."""
    log = memory_log()
    for _ in range(3):
        append(log, prepare_own_batch(many_records(10, timestamp=1, max_timestamp=100)))
    append(log, batch(b"honest", timestamps=[60]))
    left = RecordsLeft(25)
    search = TimestampSearch(50, left)
    region = log.next_region(search)
    assert region is not None
    found = search.look(region)
    assert found is not None
    assert (found.offset, left.count) == (20, 5)
    youngest = MaxTimestampSearch(left)
    region = log.next_region(youngest)
    assert region is not None
    assert youngest.look(region) == (9, 100, 0)


def test_a_batch_that_is_too_large_to_be_opened_is_believed() -> None:
    log = memory_log()
    append(log, batch(b"before", timestamps=[1]))
    append(log, prepare_own_batch(many_records(5_000_000, timestamp=1, max_timestamp=100)))
    assert found_at(log, 50) == 1


def test_a_batch_without_sense_in_it_is_believed() -> None:
    log = memory_log()
    append(log, batch(b"before", timestamps=[1]))
    data = bytearray(many_records(10, Codec.NONE, max_timestamp=100))
    data[61] = 0x7F  # the first record is longer than the batch
    append(log, prepare_own_batch(data))
    assert found_at(log, 50) == 1


@pytest.mark.parametrize("change", ["appended", "rolled", "start advanced", "expired"])
def test_what_a_search_was_given_stays_readable(change: str) -> None:
    log = memory_log(small_segments(1000))
    for number in range(40):
        append(log, batch(b"v" * 100, timestamps=[number]))
    search = TimestampSearch(3, RecordsLeft())
    region = log.next_region(search)
    assert region is not None
    match change:
        case "appended":
            append(log, batch(b"more", timestamps=[3]))
        case "rolled":
            log.roll(NOW_MS)
        case "start advanced":
            log.advance_log_start(30)
        case "expired":
            log.advance_log_start(30)
            log.delete_expired(NOW_MS, log.log_end_offset)
    found = search.look(region)
    assert found is not None
    assert found.offset == 3


@pytest.mark.parametrize(("value_bytes", "told"), [(1_000, 20), (timestamps.UNPACKED_BYTES_MAX // 2, 10)])
def test_to_look_at_one_record_unpacks_little_and_believes_the_header_of_what_is_large(
    value_bytes: int, told: int
) -> None:
    """It is done on the event loop: 15 KB of gzip that unpack to 16 MiB held it for 170 ms."""
    log = memory_log()
    records = [Record(index, time, None, bytes(value_bytes)) for index, time in enumerate((10, 20))]
    append(log, prepare_own_batch(build_batch(records, codec=Codec.GZIP)))
    assert timestamp_at(log, 1) == told
