"""Confluent's wire format: a byte 0, the schema's id in four bytes, then the value."""

MAGIC = 0
PREFIX_BYTES = 5


class BadValue(Exception):
    """Error: a value cannot be decoded; the words are the record's reason."""


def schema_id(value: bytes) -> int:
    if len(value) < PREFIX_BYTES:
        raise BadValue(f"{len(value)} bytes are too few for a schema's id")
    if value[0] != MAGIC:
        raise BadValue(f"the first byte is {value[0]}, not {MAGIC}: no value with a schema's id")
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


def prefix(schema: int) -> bytes:
    return bytes((MAGIC,)) + schema.to_bytes(4, "big")


def zigzag(numbers: tuple[int, ...]) -> bytes:
    """The place of a message in its Protobuf schema: the count of numbers, then each; the first message is a single
    0."""
    if numbers == (0,):
        return b"\0"
    return b"".join(_varint(number << 1) for number in (len(numbers), *numbers))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def message_place(value: bytes) -> tuple[tuple[int, ...], int]:
    """The numbers that follow the schema's id, and the position at which the message begins."""
    count, place = _read(value, PREFIX_BYTES)
    if count == 0:
        return (0,), place
    if not 0 < count <= len(value):
        raise BadValue("the place of the message in its schema cannot be read")
    numbers = []
    for _ in range(count):
        number, place = _read(value, place)
        numbers.append(number)
    return tuple(numbers), place


def _read(value: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while place < len(value) and shift < 64:
        byte = value[place]
        place += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), place
        shift += 7
    raise BadValue("the place of the message in its schema cannot be read")
