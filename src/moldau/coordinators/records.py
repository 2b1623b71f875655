"""The records of a coordinator's topic as values, and to bytes and back.

A key begins with an int16 that is the record's type, a value with an int16 that is its version. A record without a
value is a tombstone. So it is in all internal topics of Kafka; which types a topic has is a table of its shard's.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Message

PREFIX_BYTES = 2
_PREFIXES = tuple(number.to_bytes(PREFIX_BYTES, "big") for number in range(64))


class RecordKey(Message):
    """Key of a record: its subject. A decoded key is an object of a subclass: ask `isinstance`, or for
    `record_type`."""

    record_type: ClassVar[int]

    def __init_subclass__(cls, *, record_type: int | None = None) -> None:
        if record_type is not None:
            super().__init_subclass__(versions=(0, 0))
            cls.record_type = record_type


class RecordValue(Message):
    """Value of a record: the new state of its subject."""

    written_version: ClassVar[int]

    def __init_subclass__(
        cls, *, written: int | None = None, versions: tuple[int, int] = (0, 0), flexible: int | None = 0
    ) -> None:
        if written is not None:
            super().__init_subclass__(versions=versions, flexible=flexible)
            cls.written_version = written

    def version_to_write(self) -> int:
        """`written_version`, unless this one says something that only another version can."""
        return self.written_version


class CoordinatorRecord(NamedTuple):
    """One change of a coordinator's state. `value` None: what the key names is gone."""

    key: RecordKey
    value: RecordValue | None


class RecordTypes:
    """The types of record that a topic has: what decodes them."""

    __slots__ = ("_of_type",)

    def __init__(self, value_of_key: Mapping[type[RecordKey], type[RecordValue]]) -> None:
        self._of_type = {key.record_type: (key, value) for key, value in value_of_key.items()}

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """The record, or None if it is of a type that we do not keep. ValueError, ProtocolError: its bytes are bad."""
        types = self._of_type.get(_prefix(key))
        if types is None:
            return None
        key_type, value_type = types
        decoded = decode(key_type, 0, key, PREFIX_BYTES)
        if value is None:
            return CoordinatorRecord(decoded, None)
        return CoordinatorRecord(decoded, decode(value_type, _prefix(value), value, PREFIX_BYTES))


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    key, value = record
    written_key = encode(key, 0, _PREFIXES[key.record_type])
    if value is None:
        return written_key, None
    version = value.version_to_write()
    return written_key, encode(value, version, _PREFIXES[version])


def _prefix(data: bytes) -> int:
    if len(data) < PREFIX_BYTES:
        raise ProtocolError(f"{len(data)} bytes are too few for a coordinator's record")
    return int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
