"""The partitions that this broker has, by name and by topic id; kept in step with the image of the cluster."""

from collections.abc import Iterator

from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.partition import Partition

ENOUGH_BYTES = 1 << 62
"""More than any fetch waits for."""


class Replicas:
    """Where handlers find partitions."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Partition]] = {}
        self._names_by_id: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Partition]:
        return (partition for topic in tuple(self._topics.values()) for partition in tuple(topic.values()))

    def add(self, topic_id: bytes, log: Log, leader_epoch: int, in_sync_replicas: tuple[int, ...]) -> Partition:
        """Lead a partition from now on."""
        partition = Partition(topic_id, log, leader_epoch, in_sync_replicas)
        topic, index = partition.topic_partition
        self._topics.setdefault(topic, {})[index] = partition
        self._names_by_id[topic_id] = topic
        return partition

    def remove_topic(self, topic: str) -> list[Partition]:
        """Forget a topic that is gone; fetches that wait for it are told at once."""
        removed = list(self._topics.pop(topic, {}).values())
        for partition in removed:
            partition.is_led = False
            self._names_by_id.pop(partition.topic_id, None)
            for waiter in tuple(partition.waiters):
                waiter.advanced(ENOUGH_BYTES)
        return removed

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """The partition, or UNKNOWN_TOPIC_OR_PARTITION."""
        try:
            return self._topics[topic][index]
        except KeyError:
            reason = f"there is no partition {topic}-{index} here"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason) from None

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._topics.get(topic, {}).values())

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic that has an id (KIP-516)."""
        return self._names_by_id.get(topic_id)
