"""The job of the child that compacts: how it travels, what it refuses, and its own parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.compaction.cleaner import LastOffsets, clean, empty_batch, rewrite
from moldau.log.compaction.job import (
    CleaningError,
    CorruptLogError,
    decode_job,
    decode_result,
    encode_error,
    encode_job,
    encode_result,
)
from moldau.log.compaction.policy import clean_job
from moldau.log.compaction.records import outline_batch
from moldau.records.batch import (
    CorruptBatchError,
    Record,
    build_batch,
    iter_records,
    read_header,
    records_data,
)
from moldau.records.compression import Codec
from moldau.records.legacy import build_message_set, read_message_set
from moldau.records.record import RecordFormatError
from tests.log.compaction.cleaning import CONFIG, SUFFIX, compact, due, new_log, put
from tests.log.helpers import (
    NOW_MS,
    append,
    idempotent,
    open_log,
)


def test_a_job_and_its_result_survive_the_pipe() -> None:
    files, log = new_log()
    append(log, idempotent(0))
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    assert decode_job(encode_job(job, 1e308)) == (job, 1e308)
    result = clean(files, job)
    assert decode_result(encode_result(result)) == result


def test_failures_survive_the_pipe() -> None:
    with pytest.raises(CorruptLogError, match="checksum"):
        decode_result(encode_error(CorruptBatchError("checksum")))
    with pytest.raises(CleaningError, match="full") as caught:
        decode_result(encode_error(OSError("disk full")))
    assert not isinstance(caught.value, CorruptLogError)


def test_a_broken_batch_ends_the_cleaning() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    path = log.segments.first.path
    data = bytearray(files.read(path))
    data[-1] ^= 1
    files.write_atomically(path, bytes(data))
    with pytest.raises(CorruptBatchError):
        clean(files, clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats_are_cleaned(magic: int, codec: Codec) -> None:
    files, log = new_log()
    time = NOW_MS if magic else -1
    rows = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None)]
    messages = [Record(offset, time, key, value) for offset, (key, value) in enumerate(rows)]
    data = build_message_set(messages, magic=magic, codec=codec)
    files.write_atomically(log.segments.active.path, data)
    log = open_log(files, CONFIG, clean=False)
    log.roll(NOW_MS)
    put(log, (b"z", b"1"))
    compact(files, log)
    old = files.read(log.segments.first.path)
    size = next(position for position, header in log.segments.first.headers() if header.magic == 2)
    assert list(read_message_set(old[:size])) == messages[1:]


def test_records_that_make_no_sense_are_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, b"key", b"value"), Record(1, NOW_MS, b"key", None)])
    data = bytes(records_data(batch, read_header(batch)))
    assert [each[5:] for each in outline_batch(data, 2)] == [(b"key", False), (b"key", True)]
    for broken, count in ((data, 1), (data, 3), (data[:-1], 2), (data[1:], 2), (b"\x01\x00\x00\x00", 1)):
        with pytest.raises(RecordFormatError):
            outline_batch(broken, count)


def test_the_map_holds_no_more_batches_when_it_is_full() -> None:
    last = LastOffsets(2)
    batch = build_batch([Record(number, 0, b"%d" % number, b"") for number in range(3)])
    last.note(outline_batch(bytes(records_data(batch, read_header(batch))), 3), 0, 0)
    assert last.is_full


def test_an_emptied_batch_is_one_that_kafka_reads() -> None:
    batch = build_batch([Record(5, NOW_MS, b"a", b"1")], codec=Codec.GZIP, producer_id=3, base_sequence=9)
    header, data = empty_batch(read_header(batch))
    assert len(data) == 61
    assert read_header(data) == header
    assert (header.codec, header.record_count, header.base_timestamp, header.base_sequence) == (0, 0, -1, 9)


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.binary(max_size=200)), min_size=1), st.integers(0, 2**62))
def test_a_horizon_changes_no_record(rows: list[tuple[int, bytes]], horizon: int) -> None:
    original = [Record(number, NOW_MS + delta, value, value) for number, (delta, value) in enumerate(rows)]
    batch = build_batch(original)
    header = read_header(batch)
    data = bytes(records_data(batch, header))
    _, written = rewrite(header, data, outline_batch(data, header.record_count), horizon)
    assert list(iter_records(written)) == original
