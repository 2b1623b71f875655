"""Partition of an internal topic to which a key (a group's id) belongs.

Law: a key is no longer than the records of the topic have place for. Requests have place for far more, and to hash a
megabyte of it would hold the event loop for a tenth of a second.
"""

from functools import lru_cache
from operator import mul
from struct import unpack

from moldau.protocol.errors import ApiError, ErrorCode

JAVA_INT_MIN = 0x80000000
"""Java's smallest int, as an unsigned number."""

_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(63, -1, -1))
"""Weight of a character in the hash, by its distance from the end; longer ids are taken in parts."""

KEY_BYTES_MAX = (1 << 15) - 1

KEYS_REMEMBERED = 8192
REMEMBERED_CHARACTERS_MAX = 256
"""The hash costs more than a microsecond, and every request of a group needs it. Long keys would take much memory."""


def partition_of(key: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode` of the id as an absolute value, modulo the partitions. Raises
    INVALID_REQUEST for a key that no record has place for."""
    if len(key) <= REMEMBERED_CHARACTERS_MAX:
        return _remembered(key, partition_count)
    if len(key) > KEY_BYTES_MAX or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"an id has no more than {KEY_BYTES_MAX:,} bytes")
    return _partition_of(key, partition_count)


def _partition_of(key: str, partition_count: int) -> int:
    encoded = key.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    hashed = 0
    for start in range(0, len(units), len(_POWERS)):
        part = units[start : start + len(_POWERS)]
        hashed = hashed * 31 ** len(part) + sum(map(mul, part, _POWERS[-len(part) :])) & 0xFFFFFFFF
    if hashed == JAVA_INT_MIN:
        return 0  # its absolute value is no int in Java; Kafka takes 0
    return min(hashed, (1 << 32) - hashed) % partition_count


_remembered = lru_cache(maxsize=KEYS_REMEMBERED)(_partition_of)
