"""Records, and how they lie one after the other inside a v2 batch (KIP-98).

The law: no length read here is trusted before it was compared with the number of bytes that are left, and every fault
in the bytes comes out as `RecordFormatError`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.core.files import Buffer
from moldau.protocol.errors import ApiError, ErrorCode

Header = tuple[str, bytes | None]

# Java's decoder puts U+FFFD in place of bad UTF-8; escaping keeps the producer's bytes as they were.
_KEY_ERRORS = "surrogateescape"
_VARLONG_BITS_MAX = 63
_CUT_OFF = "the records end in the middle of a field"


class RecordFormatError(ApiError):
    """Error: the records make no sense though the checksum is right. INVALID_RECORD, as a retry would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class Record(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


RecordOutline = tuple[int, int, bool]
"""Outline of a record, with the fields that a broker looks at: timestamp delta, offset delta, whether it has a key."""

_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The zig-zag varint at `position` and the position after it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return _ZIGZAG[byte], position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > _VARLONG_BITS_MAX:
            raise RecordFormatError("a variable length integer is longer than ten bytes")


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` as a zig-zag varint."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _varint(value: int) -> bytes:
    """`value` as a zig-zag varint."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_VARINTS = tuple(map(_varint, range(256)))
"""Varints of the most common lengths and deltas; `_varint` makes the others."""
_VARINTS_END = len(_VARINTS)


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> tuple[bytes, bytes]:
    """The length and the body of `record` in a batch that starts at `base_offset` and `base_timestamp`."""
    offset, timestamp, key, value, headers = record
    delta = offset - base_offset
    key_size, key = _sized(key)
    value_size, value = _sized(value)
    body = b"".join(
        (
            b"\0",  # the attributes of a record are unused
            _varint(timestamp - base_timestamp) if timestamp != base_timestamp else b"\0",
            _VARINTS[delta] if 0 <= delta < _VARINTS_END else _varint(delta),
            key_size,
            key,
            value_size,
            value,
            _encode_headers(headers) if headers else b"\0",
        )
    )
    size = len(body)
    return _VARINTS[size] if size < _VARINTS_END else _varint(size), body


def encode_record_into(out: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    """Add one record: for records that come one by one and are too many to be held."""
    size, body = _encode_record(record, base_offset, base_timestamp)
    out += size
    out += body


def _sized(value: bytes | None) -> tuple[bytes, bytes]:
    """The length prefix of a key or a value, and its bytes."""
    if value is None:
        return b"\1", b""  # -1
    size = len(value)
    return _VARINTS[size] if size < _VARINTS_END else _varint(size), value


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    pieces = [_varint(len(headers))]
    for key, value in headers:
        pieces += _sized(key.encode("utf-8", _KEY_ERRORS))
        pieces += _sized(value)
    return b"".join(pieces)


def decode_records(data: Buffer, count: int, base_offset: int, base_timestamp: int) -> Iterator[Record]:
    """The `count` records in `data`, which must hold exactly that many."""
    data = bytes(data)  # indexing a memoryview is slower
    try:
        for position, end in _record_bodies(data, count):
            yield _decode_record(data, position, end, base_offset, base_timestamp)
    except IndexError:
        raise RecordFormatError(_CUT_OFF) from None


def outline_records(data: Buffer, count: int) -> Iterator[RecordOutline]:
    """Outlines of the `count` records in `data`, without looking at keys, values and headers."""
    data = bytes(data)
    try:
        for position, end in _record_bodies(data, count):
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            key_size, position = read_varint(data, position)
            if position + key_size > end or position > end:
                raise RecordFormatError(f"a key of {key_size} bytes does not fit into its record")
            yield timestamp_delta, offset_delta, key_size >= 0
    except IndexError:
        raise RecordFormatError(_CUT_OFF) from None


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The records one after the other, not compressed."""
    pieces: list[bytes] = []
    for record in records:
        pieces += _encode_record(record, base_offset, base_timestamp)
    return b"".join(pieces)


def _record_bodies(data: bytes, count: int) -> Iterator[tuple[int, int]]:
    """The positions at which each record's fields begin and end."""
    position = 0
    size = len(data)
    for _ in range(count):
        length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise RecordFormatError(f"a record of {length} bytes does not fit into the {size - position} left")
        yield position, end
        position = end
    if position != size:
        raise RecordFormatError(f"{size - position} bytes are left behind the {count} records of the batch")


def _decode_record(data: bytes, position: int, end: int, base_offset: int, base_timestamp: int) -> Record:
    # Positions only grow, so the one check at the end covers every field.
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    headers: tuple[Header, ...] = ()
    count, position = read_varint(data, position)
    if count:
        headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise RecordFormatError(f"the fields of a record end {position - end:+} bytes from where it ends")
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, headers)


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    # Two bytes is the least that a header takes.
    if count < 0 or count * 2 > end - position:
        raise RecordFormatError(f"{count} headers do not fit into the {end - position} bytes left of the record")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise RecordFormatError("a header has no key")
        value, position = _read_bytes(data, position)
        headers.append((key.decode("utf-8", _KEY_ERRORS), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """The bytes at `position`, and the position behind them; any negative length is null, as Kafka reads it. The caller
    checks that position."""
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
