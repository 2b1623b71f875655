import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.protocol.errors import ErrorCode
from moldau.records.batch import Record
from moldau.records.record import (
    RecordFormatError,
    decode_records,
    encode_records,
    outline_records,
    read_varint,
    write_varint,
)
from tests.records.strategies import record_lists


def encoded(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (8191, "fe7f"), (8192, "808001"),
     (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"),
     (-(2**63), "ffffffffffffffffff01")],
)  # fmt: skip  # a table
def test_varints_are_zig_zag_as_in_kafka(value: int, data: str) -> None:
    assert encoded(value).hex() == data
    assert read_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    assert read_varint(encoded(value), 0) == (value, len(encoded(value)))


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(RecordFormatError):
        read_varint(b"\x80" * 11, 0)


@given(record_lists())
def test_records_are_read_as_they_were_written(records: list[Record]) -> None:
    data = encode_records(records, 0, records[0].timestamp)
    assert list(decode_records(data, len(records), 0, records[0].timestamp)) == records


@given(record_lists())
def test_an_outline_agrees_with_the_record(records: list[Record]) -> None:
    data = encode_records(records, 0, 0)
    expected = [(record.timestamp, record.offset, record.key is not None) for record in records]
    assert list(outline_records(data, len(records))) == expected


@pytest.mark.parametrize(("difference"), [-1, 1])
def test_a_wrong_count_is_refused(difference: int) -> None:
    data = encode_records([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")], 0, 0)
    with pytest.raises(RecordFormatError) as error:
        list(decode_records(data, 2 + difference, 0, 0))
    assert error.value.code == ErrorCode.INVALID_RECORD
    with pytest.raises(RecordFormatError):
        list(outline_records(data, 2 + difference))


@given(record_lists(), st.data())
def test_records_cut_anywhere_are_refused(records: list[Record], data: st.DataObject) -> None:
    encoded_records = encode_records(records, 0, 0)
    cut = data.draw(st.integers(0, len(encoded_records) - 1))
    with pytest.raises(RecordFormatError):
        list(decode_records(encoded_records[:cut], len(records), 0, 0))


@given(st.binary(max_size=200), st.integers(-1, 50))
def test_random_bytes_are_refused_or_read_but_nothing_else(data: bytes, count: int) -> None:
    for read in (lambda: list(decode_records(data, count, 0, 0)), lambda: list(outline_records(data, count))):
        try:
            read()
        except RecordFormatError:
            continue


def test_header_keys_that_are_not_utf8_keep_their_bytes() -> None:
    record = Record(0, 0, None, None, ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"v"),))
    data = encode_records([record], 0, 0)
    assert b"\xff\xfe" in data
    assert list(decode_records(data, 1, 0, 0)) == [record]
