"""The records of `__consumer_offsets` as values, and to bytes and back.

A key begins with an int16 that is the record's type, a value with an int16 that is its version. A record without a
value is a tombstone.
"""

from typing import NamedTuple

from moldau.coordinators.group_record_tables import KEY_OF_TYPE, VALUE_OF_KEY, OffsetCommitValue, RecordKey, RecordValue
from moldau.protocol.codec import decode, encode
from moldau.protocol.errors import ProtocolError

PREFIX_BYTES = 2
_PREFIXES = tuple(number.to_bytes(PREFIX_BYTES, "big") for number in range(64))
OFFSET_COMMIT_WITH_EXPIRY = 1
"""The one version of an offset that says when it expires."""


class CoordinatorRecord(NamedTuple):
    """One change of a coordinator's state. `value` None: what the key names is gone."""

    key: RecordKey
    value: RecordValue | None


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they lie in the log."""
    key, value = record
    written_key = encode(key, 0, _PREFIXES[key.record_type])
    if value is None:
        return written_key, None
    version = _version_to_write(value) if type(value) is OffsetCommitValue else value.written_version
    return written_key, encode(value, version, _PREFIXES[version])


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record, or None if it is of a type that we do not keep. ValueError, ProtocolError: its bytes are bad."""
    key_type = KEY_OF_TYPE.get(_prefix(key))
    if key_type is None:
        return None
    decoded = decode(key_type, 0, key, PREFIX_BYTES)
    if value is None:
        return CoordinatorRecord(decoded, None)
    return CoordinatorRecord(decoded, decode(VALUE_OF_KEY[key_type], _prefix(value), value, PREFIX_BYTES))


def _version_to_write(value: OffsetCommitValue) -> int:
    return value.written_version if value.expire_timestamp == -1 else OFFSET_COMMIT_WITH_EXPIRY


def _prefix(data: bytes) -> int:
    if len(data) < PREFIX_BYTES:
        raise ProtocolError(f"{len(data)} bytes are too few for a coordinator's record")
    return int.from_bytes(data[:PREFIX_BYTES], "big", signed=True)
