"""Messages with plausible random values, for the tests that compare codecs.

Values stay in what every oracle can hold: known error codes, times that fit a calendar.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, cast

from moldau.core.files import File, FileRegion
from moldau.protocol import apis
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Field,
    Message,
    Primitive,
    Struct,
    WireType,
)

ALPHABET = "abcXYZ09._-žЖ漢🙂"


def message_types() -> list[type[Message]]:
    """Every request and response there is."""
    tables = (apis.request_type, apis.response_type)
    return [table(api.key) for api in apis.APIS for table in tables]


def versions(message_type: type[Message]) -> range:
    first, last = message_type.versions
    return range(first, last + 1)


def every_version() -> Iterator[tuple[type[Message], int]]:
    for message_type in message_types():
        for version in versions(message_type):
            yield message_type, version


def sample(struct_type: type[Struct], version: int, random: Random) -> Any:
    """An instance that sets everything `version` has room for."""
    fields = struct_type.__fields__.items()
    return struct_type(**{name: _field(name, row, version, random) for name, row in fields if row.is_in(version)})


def _field(name: str, row: Field, version: int, random: Random) -> Any:
    if row.is_nullable_in(version) and random.random() < 0.2:
        return None
    if row.tag >= 0 and random.random() < 0.3:
        return [] if isinstance(row.wire, Array) and row.default is not None else row.default
    return _value(name, row.wire, version, random)


def _value(name: str, wire: WireType, version: int, random: Random) -> Any:
    if isinstance(wire, Array):
        return [_value(name, wire.element, version, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if isinstance(wire, Primitive):
        return _primitive(name, wire, random)
    return sample(wire, version, random)


def _primitive(name: str, wire: Primitive, random: Random) -> Any:
    if wire is STRING:
        return "".join(random.choices(ALPHABET, k=random.choice((0, 1, 7, 20, 150))))
    if wire is BYTES or wire is RECORDS:
        return random.randbytes(random.choice((0, 1, 60, 200)))
    if wire is UUID:
        return random.randbytes(16)
    if wire is BOOLEAN:
        return random.random() < 0.5
    if wire is FLOAT64:
        return random.uniform(-1e9, 1e9)
    return _number(name, wire, random)


def _number(name: str, wire: Primitive, random: Random) -> int:
    if name.endswith("error_code"):
        return random.choice([code for code in ErrorCode if code <= ErrorCode.UNKNOWN_CONTROLLER_ID]).value
    if "timestamp" in name or name.endswith("_ms"):
        return random.randrange(10**12, 2 * 10**12) if wire is INT64 else random.randrange(10**4)
    bits = 8 * wire.size
    if wire is UINT16 or wire is UINT32:
        return random.randrange(2**bits)
    return random.choice((-1, 0, 1, random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))))


class _OneFile:
    """As much of a file as a region needs."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_at(self, position: int, size: int) -> bytes:
        return self.content[position : position + size]


def region_of(content: bytes, position: int, size: int) -> FileRegion:
    """A part of a file that holds `content`."""
    return FileRegion(cast(File, _OneFile(content)), position, size)
