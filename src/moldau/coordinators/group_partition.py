"""Which partition of `__consumer_offsets` a group belongs to."""

from functools import lru_cache

JAVA_INT_MIN = 0x80000000
"""As an unsigned number."""

GROUPS_REMEMBERED = 8192
"""The hash costs 10 us, and every request of a group needs it."""


@lru_cache(maxsize=GROUPS_REMEMBERED)
def partition_of(group_id: str, partition_count: int) -> int:
    """Kafka's choice: Java's `String.hashCode` of the id as an absolute value, modulo the partitions."""
    hashed = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        hashed = (31 * hashed + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    if hashed == JAVA_INT_MIN:
        return 0  # its absolute value is no int in Java; Kafka takes 0
    return min(hashed, (1 << 32) - hashed) % partition_count
