"""Records of `__consumer_offsets` against what Kafka's own serializer wrote (`vectors/CoordinatorRecords.java`)."""

from pathlib import Path

import pytest

from moldau.coordinators.groups.record_tables import GROUP_RECORDS, VALUE_OF_KEY, OffsetCommitKey, OffsetCommitValue
from moldau.coordinators.records import CoordinatorRecord, RecordKey, encode_record
from moldau.protocol.codec import encode
from moldau.protocol.errors import ProtocolError

KEY = OffsetCommitKey(group="g", topic="t", partition=0)


def read_vectors() -> list[tuple[bytes, bytes | None]]:
    lines = (Path(__file__).parent / "vectors" / "coordinator_records.txt").read_text().splitlines()
    pairs = [line.split() for line in lines]
    return [(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value)) for key, value in pairs]


def decoded(key: bytes, value: bytes | None) -> CoordinatorRecord:
    record = GROUP_RECORDS.decode(key, value)
    assert record is not None
    return record


def test_what_kafka_wrote_is_read_and_written_again() -> None:
    for key, value in read_vectors():
        record = decoded(key, value)
        assert encode_record(record)[0] == key
        if value is not None:
            assert record.value is not None
            version = int.from_bytes(value[:2], "big")
            assert value[:2] + encode(record.value, version) == value


def test_the_vectors_cover_every_table() -> None:
    def table(key: RecordKey) -> type[RecordKey]:
        return next(each for each in VALUE_OF_KEY if isinstance(key, each))

    assert {table(decoded(*vector).key) for vector in read_vectors()} == set(VALUE_OF_KEY)


def test_an_offset_is_written_in_the_version_that_kafka_writes() -> None:
    plain = encode_record(CoordinatorRecord(KEY, OffsetCommitValue(offset=1, topic_id=b"\1" * 16)))[1]
    expiring = encode_record(CoordinatorRecord(KEY, OffsetCommitValue(offset=1, expire_timestamp=5)))[1]
    assert plain is not None
    assert plain[:2] == b"\0\4"
    assert expiring is not None
    assert expiring[:2] == b"\0\1"


def test_a_record_of_an_unknown_type_is_skipped() -> None:
    assert GROUP_RECORDS.decode(b"\0\x63whatever", b"\0\0") is None


@pytest.mark.parametrize(("key", "value"), [(b"\0", None), (encode_record(CoordinatorRecord(KEY, None))[0], b"\0\4\0")])
def test_bytes_that_are_cut_off_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        GROUP_RECORDS.decode(key, value)


def test_a_value_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="has no version 9"):
        GROUP_RECORDS.decode(encode_record(CoordinatorRecord(KEY, None))[0], b"\0\x09")
