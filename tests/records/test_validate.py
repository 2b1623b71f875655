import random
from contextlib import suppress
from typing import Any

import pytest

from moldau.core.clock import ManualClock
from moldau.core.files import Buffer
from moldau.core.invariants import InvariantError
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records import legacy
from moldau.records.batch import BODY_START, Record, build_batch, iter_records, read_header, split_batches, stamp
from moldau.records.compression import Codec, compress
from moldau.records.legacy import encode_message
from moldau.records.validate import (
    ALLOWANCE_MS,
    ALLOWED_BYTES,
    ALLOWED_RECORDS,
    COMPRESSED_RECORDS_MAX,
    RECORD_BYTES_MIN,
    SET_MESSAGES_MAX,
    TIMESTAMP_UNLIMITED_MS,
    Allowance,
    AppendRules,
    InvalidRecordsError,
    PreparedBatch,
    RecordsToOpen,
    prepare_for_append,
    prepare_own_batch,
)
from tests.records.produce_cases import NOW, RECORDS, WITHOUT_KEY, Case, T, cases, changed
from tests.records.vector_files import read_outcomes, read_vectors

CASES = {case.name: case for case in cases()}
KAFKA = read_outcomes("appends.txt")

# Where we refuse what Kafka takes, or say more than UNKNOWN_SERVER_ERROR. None of it is sent by any client.
DIFFERENT = {
    "codec_5": "UNSUPPORTED_COMPRESSION_TYPE",
    "inner_offsets_wrong": "INVALID_RECORD",
    "offsets_wrong_uncompressed": "INVALID_RECORD",
    # Kafka answers success to a set of which nothing could be stored.
    **{f"v{magic}_{codec}_cut": "INVALID_RECORD" for magic in (0, 1) for codec in ("gzip", "snappy", "lz4")},
}


def prepare(
    data: Buffer, *, produce_version: int = 11, max_message_bytes: int = 1_048_588, **rules: Any
) -> PreparedBatch:
    return prepare_for_append(data, AppendRules(max_message_bytes, **rules), produce_version, NOW)


def settings(config: dict[str, str]) -> dict[str, Any]:
    """A topic's configuration as arguments."""
    return {
        "max_message_bytes": int(config.get("max.message.bytes", 1_048_588)),
        "compression_type": config.get("compression.type", "producer"),
        "message_timestamp_type": config.get("message.timestamp.type", "CreateTime"),
        "timestamp_before_max_ms": int(config.get("message.timestamp.before.max.ms", TIMESTAMP_UNLIMITED_MS)),
        "timestamp_after_max_ms": int(config.get("message.timestamp.after.max.ms", 3_600_000)),
        "is_compacted": config.get("cleanup.policy") == "compact",
    }


def stored(prepared: PreparedBatch) -> bytes:
    """The batch as a log writes it at offset 0 in leader epoch 0."""
    return stamp(0, prepared.header.batch_length, 0) + prepared.body


def outcome(case: Case) -> str:
    try:
        prepared = prepare_for_append(case.data, AppendRules(**settings(case.config)), case.version, NOW)
    except ApiError as error:
        return error.code.name
    assert prepared.header._replace(base_offset=0, partition_leader_epoch=0) == read_header(stored(prepared))
    return stored(prepared).hex()


def content(batch: bytes) -> object:
    """All of a batch but its compressed bytes, which differ between versions of a library."""
    [(header, view)] = split_batches(batch)
    return header._replace(batch_length=0, crc=0), list(iter_records(view))


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_is_that_of_apache_kafka(name: str) -> None:
    ours, expected = outcome(CASES[name]), DIFFERENT.get(name, KAFKA[name])
    if expected.startswith("00") and ours.startswith("00"):
        assert content(bytes.fromhex(ours)) == content(bytes.fromhex(expected))
        if read_header(bytes.fromhex(expected)).codec != Codec.NONE:
            return
    assert ours == expected


def test_every_case_was_put_to_apache_kafka() -> None:
    assert set(CASES) == set(KAFKA)


@pytest.mark.parametrize("name", read_vectors("librdkafka.txt"))
def test_what_librdkafka_sends_is_kept_as_it_is(name: str) -> None:
    data = read_vectors("librdkafka.txt")[name]
    prepared = prepare(data)
    assert prepared.body == data[BODY_START:]


def test_a_common_batch_is_not_copied() -> None:
    frame = memoryview(b"request" + build_batch(RECORDS))
    prepared = prepare(frame[7:])
    assert prepared.body.obj is frame.obj
    assert prepared.header == read_header(frame, 7)
    assert prepared.size == len(frame) - 7


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_keeps_the_bytes_of_a_good_batch(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    prepared = prepare(batch, is_compacted=True)
    assert prepared.body.obj is batch


def test_the_records_to_blame_are_named() -> None:
    with pytest.raises(InvalidRecordsError) as error:
        prepare(build_batch(WITHOUT_KEY), is_compacted=True)
    assert error.value.code == ErrorCode.INVALID_RECORD
    assert [blamed.batch_index for blamed in error.value.record_errors] == [1]


def test_a_bad_timestamp_decides_the_code_even_among_other_errors() -> None:
    batch = build_batch([Record(0, T, None, b"v"), Record(1, NOW + 11, b"k", b"v")])
    with pytest.raises(InvalidRecordsError) as error:
        prepare(batch, is_compacted=True, timestamp_after_max_ms=10)
    assert error.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [blamed.batch_index for blamed in error.value.record_errors] == [0, 1]


def test_append_time_is_put_on_a_batch_without_opening_it() -> None:
    batch = changed(build_batch(RECORDS, codec=Codec.GZIP), producer_id=3, producer_epoch=1, base_sequence=5)
    not_gzip = batch[:61] + b"?" * (len(batch) - 61)
    closed = changed(not_gzip)
    prepared = prepare(closed, message_timestamp_type="LogAppendTime")
    assert prepared.header.is_log_append_time
    assert (prepared.header.max_timestamp, prepared.header.producer_id) == (NOW, 3)
    assert stored(prepared)[61:] == not_gzip[61:]


@pytest.mark.parametrize("compression_type", ["producer", "lz4"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_batch_of_a_transaction_keeps_its_mark_and_has_a_producer(compression_type: str, is_compacted: bool) -> None:
    batch = build_batch(RECORDS, producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    prepared = prepare(batch, compression_type=compression_type, is_compacted=is_compacted)
    assert prepared.header.is_transactional
    with pytest.raises(ApiError) as error:
        prepare(changed(batch, producer_id=-1, producer_epoch=-1, base_sequence=-1))
    assert error.value.code == ErrorCode.INVALID_RECORD


def test_recompression_keeps_the_producer() -> None:
    batch = build_batch(RECORDS, producer_id=3, producer_epoch=2, base_sequence=8)
    prepared = prepare(batch, compression_type="lz4")
    header = prepared.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, 8)
    assert header.codec == Codec.LZ4
    assert list(iter_records(stored(prepared))) == list(RECORDS)


def lying(batch: bytes, count: int) -> bytes:
    return changed(batch, record_count=count, last_offset_delta=count - 1)


@pytest.mark.parametrize("rules", [{}, {"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}])
def test_more_records_than_can_be_in_a_batch_are_refused(rules: dict[str, Any]) -> None:
    smallest = [Record(number, T, None, None) for number in range(50)]
    plain, packed = build_batch(smallest), build_batch(smallest, codec=Codec.GZIP)
    assert len(plain) == 61 + 50 * RECORD_BYTES_MIN
    assert prepare(plain, **rules).header.record_count == 50
    for batch in (
        lying(plain, 51),
        lying(plain, 2**31 - 1),
        lying(packed, COMPRESSED_RECORDS_MAX + 1),
        lying(packed, 2**31 - 1),
    ):
        with pytest.raises(ApiError) as error:
            prepare(batch, **rules)
        assert error.value.code == ErrorCode.INVALID_RECORD
    assert prepare(lying(packed, COMPRESSED_RECORDS_MAX)).header.record_count == COMPRESSED_RECORDS_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_is_a_bomb_is_refused_where_it_has_to_be_opened(codec: Codec) -> None:
    bomb = build_batch([Record(0, T, b"k", b"\0" * (65 * 1024 * 1024))], codec=codec)
    assert prepare(bomb, max_message_bytes=len(bomb))
    with pytest.raises(ApiError) as error:
        prepare(bomb, max_message_bytes=len(bomb), is_compacted=True)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_too_many_records_are_refused_before_they_are_opened() -> None:
    count = legacy.MESSAGES_MAX + 1
    batch = lying(build_batch(RECORDS, codec=Codec.GZIP), count)
    with pytest.raises(ApiError) as error:
        prepare(batch, is_compacted=True)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_too_many_messages_are_refused_before_all_are_converted() -> None:
    message = encode_message(Record(0, T, b"k", b""), 1, 0)
    data = encode_message(
        Record(0, T, None, bytes(compress(Codec.GZIP, message * (SET_MESSAGES_MAX + 1)))), 1, Codec.GZIP
    )
    with pytest.raises(ApiError) as error:
        prepare(data, produce_version=2, max_message_bytes=len(data))
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("version", [2, 11])
def test_what_an_allowance_does_not_cover_comes_out_the_same(version: int, is_compacted: bool) -> None:
    """With work done at once or elsewhere, each case is stored or refused alike."""
    rules = AppendRules(1 << 20, compression_type="gzip", is_compacted=is_compacted)
    for case in CASES.values():
        generous, spent = Allowance(ManualClock()), Allowance(ManualClock())
        spent.take(spent.bytes_left, spent.records_left)
        outcomes = [outcome_of(case.data, rules, version, allowance) for allowance in (None, generous, spent)]
        assert outcomes[0] == outcomes[1] == outcomes[2], case.name


def outcome_of(data: bytes, rules: AppendRules, version: int, allowance: Allowance | None) -> object:
    try:
        try:
            return stored(prepare_for_append(data, rules, version, NOW, allowance))
        except RecordsToOpen as to_open:
            return stored(to_open.work())
    except ApiError as error:
        return error.code


def test_an_allowance_is_filled_up_again() -> None:
    clock = ManualClock()
    allowance = Allowance(clock)
    assert allowance.take(ALLOWED_BYTES, ALLOWED_RECORDS)
    clock.advance(ALLOWANCE_MS - 1)
    assert not allowance.take(1)
    clock.advance(1)
    assert allowance.take(1, 1)


def test_batches_of_our_own_are_taken_as_they_are() -> None:
    batch = build_batch(RECORDS, is_control=True, base_offset=0)
    assert stored(prepare_own_batch(batch))[BODY_START:] == batch[BODY_START:]


@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_damaged_batches_are_never_more_than_an_expected_failure(compression_type: str, is_compacted: bool) -> None:
    whole = [case.data for case in CASES.values() if case.data]
    for seed in range(1_000):
        generator = random.Random(seed)
        damaged = bytearray(generator.choice(whole))
        for _ in range(generator.randrange(1, 5)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        with suppress(ApiError):
            prepare(
                damaged,
                produce_version=generator.choice([0, 2, 3, 9, 13]),
                compression_type=compression_type,
                is_compacted=is_compacted,
            )


@pytest.mark.parametrize("is_compacted", [False, True])
def test_records_damaged_before_the_checksum_was_made_are_refused_or_read(is_compacted: bool) -> None:
    for seed in range(500):
        generator = random.Random(seed)
        batch = bytearray(build_batch(RECORDS, codec=generator.choice(list(Codec))))
        for _ in range(generator.randrange(1, 4)):
            batch[generator.randrange(61, len(batch))] = generator.randrange(256)
        with suppress(ApiError):
            prepare(changed(bytes(batch)), compression_type="uncompressed", is_compacted=is_compacted)


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(InvariantError):
        build_batch([])
