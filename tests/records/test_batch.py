import random
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.errors import ErrorCode
from moldau.records.batch import (
    BODY_START,
    BatchHeader,
    CorruptBatchError,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    check_batch,
    iter_records,
    read_end_txn_marker,
    read_header,
    split_batches,
    stamp,
)
from moldau.records.compression import CODECS_BY_NAME, Codec
from tests.records import oracles
from tests.records.strategies import record_lists
from tests.records.vector_files import SENT, T, read_vectors

JAVA = read_vectors("batches.txt")
LIBRDKAFKA = read_vectors("librdkafka.txt")
CODECS = [codec.name.lower() for codec in Codec]


@pytest.mark.parametrize("name", [*CODECS, "idempotent", "transactional"])
def test_batches_of_kafkas_java_classes_are_read(name: str) -> None:
    [(header, batch)] = split_batches(JAVA[name])
    assert list(iter_records(batch)) == list(SENT)
    assert (header.record_count, header.last_offset, header.base_timestamp, header.max_timestamp) == (
        4, 3, T + 5, T + 70_000,
    )  # fmt: skip  # pairs with the line above


@pytest.mark.parametrize("name", LIBRDKAFKA)
def test_batches_of_librdkafka_are_read(name: str) -> None:
    [(header, batch)] = split_batches(LIBRDKAFKA[name])
    [first, *rest] = iter_records(batch)
    assert first == SENT[0]._replace(headers=(("header", b"value"), ("", None)))
    assert rest == list(SENT[1:])
    assert header.has_producer_id == name.endswith("_idempotent")


@pytest.mark.parametrize("name", [name for name in JAVA if name.startswith("large_")])
def test_batches_of_several_compressed_blocks_are_read(name: str) -> None:
    [(_, batch)] = split_batches(JAVA[name])
    assert list(iter_records(batch)) == [Record(0, T, None, b"moldau" * 20_000)]


def test_batches_equal_those_of_kafkas_java_classes() -> None:
    by_a_producer = partial(build_batch, SENT, producer_id=42, producer_epoch=3, base_sequence=7)
    assert build_batch(SENT) == JAVA["none"]
    assert by_a_producer() == JAVA["idempotent"]
    assert by_a_producer(is_transactional=True) == JAVA["transactional"]
    assert build_batch(SENT, log_append_time_ms=T + 99) == JAVA["log_append_time"]


@pytest.mark.parametrize(("name", "committed"), [("marker_commit", True), ("marker_abort", False)])
def test_the_end_of_a_transaction_equals_kafkas(name: str, committed: bool) -> None:
    marker = EndTxnMarker(committed, 9)
    batch = build_end_txn_marker(marker, producer_id=42, producer_epoch=3, timestamp=T, base_offset=12)
    header = read_header(JAVA[name])
    assert read_end_txn_marker(JAVA[name]) == marker
    assert batch[BODY_START:] == JAVA[name][BODY_START:]
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)


def test_control_records_of_an_unknown_kind_are_not_markers() -> None:
    batch = build_batch([Record(0, T, b"\0\0\0\5", b"")], is_control=True)
    assert read_end_txn_marker(batch) is None


@given(record_lists(), st.sampled_from(list(Codec)))
def test_a_batch_is_read_as_it_was_written(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec)
    [(header, view)] = split_batches(batch)
    assert header.codec == codec
    assert list(iter_records(view)) == records


@given(record_lists(), st.sampled_from(list(Codec)))
def test_aiokafka_reads_what_we_write_and_the_other_way_round(records: list[Record], codec: Codec) -> None:
    records = [record._replace(timestamp=abs(record.timestamp)) for record in records]
    assert oracles.read_by_aiokafka(build_batch(records, codec=codec)) == records
    assert list(iter_records(oracles.written_by_aiokafka(records, codec=codec))) == records


@given(record_lists(), st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]))
def test_kafka_python_reads_what_we_write_and_the_other_way_round(records: list[Record], codec: Codec) -> None:
    records = [record._replace(timestamp=abs(record.timestamp)) for record in records]
    assert oracles.read_by_kafka_python(build_batch(records, codec=codec)) == records
    assert list(iter_records(oracles.written_by_kafka_python(records, magic=2, codec=codec))) == records


def test_offsets_may_have_gaps_as_after_compaction() -> None:
    records = [Record(10, T, b"a", b"1"), Record(17, T, b"b", b"2")]
    batch = build_batch(records, base_offset=8)
    assert read_header(batch).last_offset == 17
    assert list(iter_records(batch)) == records


def test_consumers_see_the_append_time_of_a_batch_that_has_one() -> None:
    batch = build_batch(SENT, log_append_time_ms=T + 99)
    assert {record.timestamp for record in iter_records(batch)} == {T + 99}


def test_a_stamp_replaces_what_lies_before_the_body() -> None:
    batch = JAVA["none"]
    stamped = stamp(1_000, read_header(batch).batch_length, 5) + batch[BODY_START:]
    [(header, view)] = split_batches(stamped)
    assert (header.base_offset, header.next_offset, header.partition_leader_epoch) == (1_000, 1_004, 5)
    assert [record.offset for record in iter_records(view)] == [1_000, 1_001, 1_002, 1_003]


def test_sequence_numbers_wrap_to_zero() -> None:
    header = read_header(JAVA["idempotent"])
    assert header.last_sequence == 10
    assert header._replace(base_sequence=2**31 - 2).last_sequence == 1
    assert header._replace(base_sequence=-1).last_sequence == -1


@pytest.mark.parametrize(
    ("flag", "name"),
    [(0x08, "is_log_append_time"), (0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_each_attribute_has_its_bit(flag: int, name: str) -> None:
    header = read_header(JAVA["none"])
    assert not getattr(header, name)
    assert getattr(header._replace(attributes=flag), name)


def test_any_bit_that_is_wrong_behind_the_leader_epoch_is_found() -> None:
    batch = JAVA["gzip"]
    for position in range(BODY_START, len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 1 << random.Random(position).randrange(8)
        with pytest.raises(CorruptBatchError) as error:
            split_batches(broken)
        assert error.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_cut_anywhere_is_found_or_left_out() -> None:
    whole = JAVA["none"]
    for size in range(1, len(whole)):
        with pytest.raises(CorruptBatchError):
            split_batches(whole + whole[:size])
        assert len(split_batches(whole + whole[:size], partial_end=True)) == 1


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    batch = JAVA["none"][:8] + length.to_bytes(4, "big", signed=True) + JAVA["none"][12:]
    with pytest.raises(CorruptBatchError):
        split_batches(batch)


def test_a_region_is_split_into_its_batches() -> None:
    batches = [build_batch([Record(offset, T, None, b"v")]) for offset in range(5)]
    headers = [header for header, _ in split_batches(b"".join(batches))]
    assert all(left.next_offset == right.base_offset for left, right in pairwise(headers))
    assert len(headers) == 5


def test_a_batch_inside_a_larger_buffer_is_checked_where_it_lies() -> None:
    buffer = b"?" * 7 + JAVA["lz4"] + b"?" * 9
    header = read_header(buffer, 7)
    check_batch(buffer, header, 7)
    assert isinstance(header, BatchHeader)
    assert header.codec == CODECS_BY_NAME["lz4"]


@given(st.binary(max_size=300))
def test_random_bytes_are_never_more_than_an_expected_failure(data: bytes) -> None:
    for partial_end in (False, True):
        with suppress(CorruptBatchError):
            split_batches(data, partial_end=partial_end)
