"""Kafka's ids as types of their own, so that a partition cannot be passed where a broker is meant."""

from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Offset = NewType("Offset", int)

NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    """A partition's name. Its directory on disk is `<topic>-<partition>`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
