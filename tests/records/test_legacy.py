from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.files import FileRegion
from moldau.core.memory_files import MemoryFiles
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    CorruptBatchError,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_records,
)
from moldau.records.compression import CODECS_BY_NAME, Codec
from moldau.records.legacy import (
    DownConversion,
    build_message_set,
    check_message,
    down_convert,
    read_message,
    read_message_set,
    split_frames,
)
from tests.records import oracles
from tests.records.strategies import record_lists
from tests.records.vector_files import SENT, T, read_outcomes, read_vectors

JAVA_0_10 = read_vectors("message_sets.txt")
JAVA_BATCHES = read_vectors("batches.txt")
JAVA_DOWN_CONVERTED = read_outcomes("down_conversion.txt")
ASKED_FOR = 2  # the offset that DownConversion.java was given
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
APPEND_TIME = T + 99


def as_sent(name: str) -> list[Record]:
    """What MessageSets.java put into the set of this name."""
    records = [record._replace(offset=record.offset + 10, headers=()) for record in SENT]
    if name.startswith("v0"):
        return [record._replace(timestamp=-1) for record in records]
    if "append_time" in name:
        return [record._replace(timestamp=APPEND_TIME) for record in records]
    return records


@pytest.mark.parametrize("name", JAVA_0_10)
def test_message_sets_of_kafka_clients_0_10_are_read(name: str) -> None:
    assert list(read_message_set(JAVA_0_10[name])) == as_sent(name)


@pytest.mark.parametrize("name", JAVA_0_10)
def test_message_sets_are_those_of_kafka_clients_0_10(name: str) -> None:
    codec = CODECS_BY_NAME[name.rpartition("_")[2]]
    append_time = APPEND_TIME if "append_time" in name else None
    ours = build_message_set(as_sent(name), magic=int(name[1]), codec=codec, log_append_time_ms=append_time)
    if codec == Codec.NONE:
        assert ours == JAVA_0_10[name]
    ours_outer, java_outer = (read_message(split_frames(data)[0]) for data in (ours, JAVA_0_10[name]))
    assert ours_outer.attributes == java_outer.attributes
    assert ours_outer.record._replace(value=None) == java_outer.record._replace(value=None)
    assert list(read_message_set(ours)) == as_sent(name)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("name", [name for name in JAVA_BATCHES if not name.startswith("large_")])
def test_down_conversion_gives_what_kafka_3_9_gave(name: str, magic: int) -> None:
    expected = JAVA_DOWN_CONVERTED[f"{name}_v{magic}"]
    if name == "zstd":
        assert expected == "UnsupportedCompressionTypeException"
        with pytest.raises(ApiError) as error:
            down_convert(JAVA_BATCHES[name], magic=magic, from_offset=ASKED_FOR)
        assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return
    ours = down_convert(JAVA_BATCHES[name], magic=magic, from_offset=ASKED_FOR)
    java = bytes.fromhex(expected)
    assert list(read_message_set(ours)) == list(read_message_set(java))
    if name in ("none", "idempotent", "transactional", "log_append_time"):
        assert ours == java


def test_down_conversion_leaves_out_markers_and_a_batch_that_is_cut_off() -> None:
    marker = build_end_txn_marker(EndTxnMarker(True, 1), producer_id=1, producer_epoch=0, timestamp=T, base_offset=4)
    last = build_batch([Record(5, T, b"k", b"v")])
    region = build_batch(SENT) + marker + last + last[:-1]
    assert [record.offset for record in read_message_set(down_convert(region, magic=1))] == [0, 1, 2, 3, 5]


def test_down_conversion_keeps_what_is_old_already_and_makes_it_older() -> None:
    region = JAVA_0_10["v1_gzip"] + JAVA_0_10["v1_none"]
    assert down_convert(region, magic=1) == region
    older = down_convert(region, magic=0)
    assert {frame[16] for frame in split_frames(older)} == {0}
    assert list(read_message_set(older)) == [record._replace(timestamp=-1) for record in as_sent("v1_none") * 2]


def test_down_conversion_checks_what_it_opens() -> None:
    damaged = build_batch(SENT)[:-1] + b"?"
    with pytest.raises(CorruptBatchError):
        down_convert(damaged, magic=1)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_conversion_is_cut_where_the_consumer_has_no_more_room(magic: int, codec: Codec) -> None:
    batch = build_batch(SENT, codec=codec)
    files = MemoryFiles()
    files.make_directory("logs")
    file = files.open("logs/log", create=True)
    file.append([batch])
    region = FileRegion(file, 0, len(batch))
    messages = down_convert(batch, magic=magic)
    first = len(split_frames(messages)[0])
    for room in range(1, len(messages) + 1):
        assert DownConversion(magic).convert(region, 0, room) == messages[:room]
        expected = messages[: max(room, first)]
        assert DownConversion(magic).convert(region, 0, room, first_whole=True) == expected


def test_down_conversion_of_nothing_is_nothing() -> None:
    assert down_convert(b"", magic=1) == b""
    assert down_convert(build_batch(SENT)[:-1], magic=1) == b""


@given(record_lists(with_headers=False), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]), st.integers(0, 2**40))
def test_a_message_set_is_read_as_it_was_written(records: list[Record], codec: Codec, magic: int, base: int) -> None:
    moved = [record._replace(offset=base + record.offset) for record in records]
    data = build_message_set(moved, magic=magic, codec=codec)
    expected = moved if magic == 1 else [record._replace(timestamp=-1) for record in moved]
    assert list(read_message_set(data)) == expected


@given(record_lists(), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]))
def test_down_conversion_keeps_all_but_headers(records: list[Record], codec: Codec, magic: int) -> None:
    batch = build_batch(records, codec=codec)
    seen = [record._replace(headers=()) for record in iter_records(batch)]
    expected = seen if magic == 1 else [record._replace(timestamp=-1) for record in seen]
    assert list(read_message_set(down_convert(batch, magic=magic))) == expected


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (1, 3)])
@given(records=record_lists(with_headers=False))
def test_kafka_python_agrees_on_message_sets(records: list[Record], magic: int, codec: int) -> None:
    records = [record._replace(timestamp=abs(record.timestamp) if magic else -1) for record in records]
    assert oracles.read_by_kafka_python(build_message_set(records, magic=magic, codec=codec)) == records
    theirs = oracles.written_by_kafka_python(records, magic=magic, codec=codec)
    assert [record._replace(offset=0) for record in read_message_set(theirs)] == [
        record._replace(offset=0) for record in records
    ]


def test_gaps_in_the_offsets_of_a_compressed_batch_stay() -> None:
    records = [Record(10, T, b"a", b"1"), Record(17, T, b"b", b"2")]
    batch = build_batch(records, base_offset=8, codec=Codec.GZIP)
    for magic in (0, 1):
        assert [record.offset for record in read_message_set(down_convert(batch, magic=magic))] == [10, 17]


@pytest.mark.parametrize("name", ["v0_none", "v1_none", "v0_gzip", "v1_lz4"])
def test_a_wrong_bit_anywhere_behind_the_size_is_found(name: str) -> None:
    frame = split_frames(JAVA_0_10[name])[0]
    for position in range(12, len(frame)):
        broken = bytearray(frame)
        broken[position] ^= 0x10
        with pytest.raises(CorruptBatchError):
            check_message(memoryview(broken))


def test_a_message_cut_off_at_the_end_is_left_out() -> None:
    data = JAVA_0_10["v1_none"]
    frames = split_frames(data)
    assert len(frames) == 4
    assert [len(split_frames(data[:-size])) for size in (1, len(frames[-1]), len(frames[-1]) + 1)] == [3, 3, 2]


@given(st.sampled_from(sorted(JAVA_0_10)), st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_sets_are_never_more_than_an_expected_failure(name: str, position: int, byte: int) -> None:
    damaged = bytearray(JAVA_0_10[name])
    damaged[position % len(damaged)] = byte
    with suppress(ApiError):
        list(read_message_set(damaged))


@given(st.binary(min_size=17, max_size=100), st.sampled_from([0, 1]))
def test_random_fields_are_never_more_than_an_expected_failure(data: bytes, magic: int) -> None:
    frame = bytearray(data)
    frame[16] = magic
    if len(frame) >= 26:
        with suppress(ApiError):
            read_message(memoryview(frame))
