"""The partitions that this broker has, led or followed, by name and by topic id; kept in step with the image."""

from collections.abc import Iterator
from typing import Protocol

from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.follower import FollowedPartition
from moldau.replication.partition import Partition
from moldau.replication.replica import Replica


class TopicLookup(Protocol):
    """Topics and partitions of the whole cluster."""

    def exists(self, topic: str, index: int) -> bool: ...

    def name_of(self, topic_id: bytes) -> str | None: ...


class Replicas:
    """Partitions that this broker leads or follows, never both."""

    def __init__(self, lookup: TopicLookup | None = None) -> None:
        self._lookup = lookup
        self._led: dict[str, dict[int, Partition]] = {}
        self._followed: dict[str, dict[int, FollowedPartition]] = {}
        self._names_by_id: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter([*self.led(), *self.followed()])

    def add(self, topic_id: bytes, log: Log, leader_epoch: int, in_sync_replicas: tuple[int, ...]) -> Partition:
        """Lead a partition from now on, of which nothing more is known."""
        partition = Partition(topic_id, log, leader_epoch, in_sync_replicas)
        self.lead(partition)
        return partition

    def lead(self, partition: Partition) -> None:
        """Lead it from now on, whatever was the case before."""
        topic, index = partition.topic_partition
        before = self._take_out(topic, index)
        self._led.setdefault(topic, {})[index] = partition
        self._names_by_id[partition.topic_id] = topic
        _retire(before)

    def follow(self, partition: FollowedPartition) -> None:
        """Follow it from now on, whatever was the case before."""
        topic, index = partition.topic_partition
        before = self._take_out(topic, index)
        self._followed.setdefault(topic, {})[index] = partition
        self._names_by_id[partition.topic_id] = topic
        _retire(before)

    def remove(self, topic: str, index: int) -> Replica | None:
        """Have it no more; those who wait for it are told at once."""
        removed = self._take_out(topic, index)
        if removed is not None and topic not in self._led and topic not in self._followed:
            self._names_by_id.pop(removed.topic_id, None)
        _retire(removed)
        return removed

    def _take_out(self, topic: str, index: int) -> Replica | None:
        for role in (self._led, self._followed):
            partitions = role.get(topic)
            if partitions is not None and index in partitions:
                taken: Replica = partitions.pop(index)
                if not partitions:
                    del role[topic]
                return taken
        return None

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition if it is led here."""
        partitions = self._led.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """The partition that is led here, or why it is not."""
        try:
            return self._led[topic][index]
        except KeyError:
            raise self._absent(topic, index) from None

    def replica(self, topic: str, index: int) -> Replica | None:
        """The copy that is here, in whichever role."""
        return self.find(topic, index) or self._followed.get(topic, {}).get(index)

    def readable(self, topic: str, index: int) -> Replica:
        """The copy that is here, or why there is none."""
        replica = self.replica(topic, index)
        if replica is None:
            raise self._absent(topic, index)
        return replica

    def _absent(self, topic: str, index: int) -> ApiError:
        if index in self._followed.get(topic, {}) or (self._lookup is not None and self._lookup.exists(topic, index)):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is led elsewhere")
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index} here")

    def led(self) -> list[Partition]:
        return [partition for topic in self._led.values() for partition in topic.values()]

    def followed(self) -> list[FollowedPartition]:
        return [partition for topic in self._followed.values() for partition in topic.values()]

    def of_topic(self, topic: str) -> list[Partition]:
        """Partitions of a topic that are led here."""
        return list(self._led.get(topic, {}).values())

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic that has an id (KIP-516), be it here or elsewhere."""
        name = self._names_by_id.get(topic_id)
        return self._lookup.name_of(topic_id) if name is None and self._lookup is not None else name


def _retire(replica: Replica | None) -> None:
    """End a replica's role. The dictionaries have changed already, so that whoever is woken finds the new one."""
    if isinstance(replica, Partition):
        replica.resign()
    elif replica is not None:
        replica.wake()
