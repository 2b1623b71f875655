"""Which partition of `__consumer_offsets` a group belongs to."""

from functools import lru_cache
from struct import unpack

JAVA_INT_MIN = 0x80000000
"""As an unsigned number."""

GROUPS_REMEMBERED = 8192
"""The hash costs 3 us, and every request of a group needs it."""


@lru_cache(maxsize=GROUPS_REMEMBERED)
def partition_of(group_id: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode` of the id as an absolute value, modulo the partitions."""
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        hashed = 31 * hashed + unit & 0xFFFFFFFF
    if hashed == JAVA_INT_MIN:
        return 0  # its absolute value is no int in Java; Kafka takes 0
    return min(hashed, (1 << 32) - hashed) % partition_count
