"""Positions that a program wants, and that librdkafka is told when it is safe.

The law: librdkafka is told of a position only when it looks up no other one. While it asks where a partition begins or
ends, it goes there when the answer comes, whatever it was told meanwhile (an answer that is out of date begins the
same lookup again: librdkafka's issue 2256). Nothing says that it is done but what comes from the partition: a record,
or the end. Until then the position is kept here; and until a record has come from it, so that the partition goes there
again when the group is balanced anew and leaves it here.
"""

from collections.abc import Callable, Collection

from confluent_kafka import TopicPartition

Partition = tuple[str, int]
"""Topic and partition."""


class Seeks:
    """The wanted positions of one consumer."""

    def __init__(self, tell: Callable[[TopicPartition], None]) -> None:
        """`tell` lets librdkafka go to a position."""
        self._tell = tell
        self._settled: set[Partition] = set()
        """Partitions that have sent something since they were assigned or told: no lookup is under way."""
        self._wanted: dict[Partition, TopicPartition] = {}
        self._told: dict[Partition, TopicPartition] = {}
        """Positions that librdkafka was told, and from which no record has come."""

    @property
    def are_waiting(self) -> bool:
        """Whether something that comes next may be from a position that nobody wants."""
        return bool(self._wanted)

    def seek(self, place: TopicPartition, *, is_assigned: bool) -> None:
        """Go to a position, now or as soon as it is safe."""
        partition = (place.topic, place.partition)
        self._told.pop(partition, None)
        if is_assigned and partition not in self._settled:
            self._wanted[partition] = place
        else:
            self._go(partition, place)

    def came(self, partition: Partition, *, is_record: bool) -> bool:
        """Note that a partition has sent a record, or its end; whether that is from where the program wants to be."""
        self._settled.add(partition)
        if is_record:
            self._told.pop(partition, None)
        if partition not in self._wanted:
            return True
        self._go(partition, self._wanted[partition])
        return False

    def _go(self, partition: Partition, place: TopicPartition) -> None:
        self._tell(place)
        self._wanted.pop(partition, None)
        self._settled.discard(partition)
        self._told[partition] = place

    def assigned(self, new: Collection[Partition], kept: Collection[Partition]) -> None:
        """Begin anew with partitions that come, or come again; forget those that went to another member."""
        self.revoked(new)
        wanted = {**self._told, **self._wanted}
        again = {partition: place for partition, place in wanted.items() if partition in new}
        self._wanted = {**again, **{each: place for each, place in self._wanted.items() if each in kept}}
        self._told = {each: place for each, place in self._told.items() if each in kept and each not in again}

    def revoked(self, gone: Collection[Partition]) -> None:
        """Believe nothing of partitions that are taken away. What is wanted of them may come again."""
        self._settled.difference_update(gone)
