"""Partition of an internal topic to which a key (a group's id) belongs."""

from functools import lru_cache
from operator import mul
from struct import unpack

JAVA_INT_MIN = 0x80000000
"""Java's smallest int, as an unsigned number."""

_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(63, -1, -1))
"""Weight of a character in the hash, by its distance from the end; longer ids are taken in parts."""

GROUPS_REMEMBERED = 8192
"""The hash costs more than a microsecond, and every request of a group needs it."""


@lru_cache(maxsize=GROUPS_REMEMBERED)
def partition_of(group_id: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode` of the id as an absolute value, modulo the partitions."""
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    hashed = 0
    for start in range(0, len(units), len(_POWERS)):
        part = units[start : start + len(_POWERS)]
        hashed = hashed * 31 ** len(part) + sum(map(mul, part, _POWERS[-len(part) :])) & 0xFFFFFFFF
    if hashed == JAVA_INT_MIN:
        return 0  # its absolute value is no int in Java; Kafka takes 0
    return min(hashed, (1 << 32) - hashed) % partition_count
