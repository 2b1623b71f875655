"""A cluster for tests: make topics, write records, read them back, with librdkafka."""

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide some
    AdminClient,
    NewPartitions,
    NewTopic,
)

from moldau.pipelines.topics import when_ready

READ_TIMEOUT_S = 30.0
LOOK_S = 0.02

_numbers = itertools.count()


class Record(NamedTuple):
    """A record that a test sends or finds."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0
    timestamp_ms: int = 0
    """Time of the record; 0: now."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    name: str
    bootstrap: str

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of librdkafka, for a client of your own."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0}

    def new_topic(self, prefix: str = "topic", partitions: int = 1, **configs: str) -> str:
        """The name of a new, empty topic; `configs` with underscores for dots."""
        return self.make(f"{prefix}-{next(_numbers)}", partitions, **configs)

    def make(self, topic: str, partitions: int = 1, **configs: str) -> str:
        """Make a topic of that name."""
        # Records of 1970 are old enough to be deleted at once.
        settings = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in configs.items()}
        admin = AdminClient(self.settings)
        [made] = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
        made.result()
        self._wait_until_known(admin, topic, partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""
        admin = AdminClient(self.settings)
        [done] = admin.create_partitions([NewPartitions(topic, partitions)]).values()
        done.result()
        self._wait_until_known(admin, topic, partitions)

    def _wait_until_known(self, admin: AdminClient, topic: str, partitions: int) -> None:
        """Wait until the broker knows the topic: the controller answers a little before."""
        deadline = time.monotonic() + READ_TIMEOUT_S
        while _partitions_of(admin, topic) < partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not know {topic}")
            time.sleep(LOOK_S)

    def send(self, topic: str, records: Iterable[Record | bytes | str]) -> None:
        """Write them and wait until they are there; plain values go to partition 0."""
        producer = Producer({**self.settings, "acks": "all"})
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for item in records:
            record = item if isinstance(item, Record) else Record(item.encode() if isinstance(item, str) else item)
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        if producer.flush(READ_TIMEOUT_S):
            raise TimeoutError(f"{topic} of {self.name} took only some of the records")
        if refused:
            raise KafkaException(refused[0])

    def read(self, topic: str) -> list[Record]:
        """Everything in a topic, partition by partition in the order of offsets."""
        consumer = Consumer({**self.settings, "group.id": "tests", "enable.auto.commit": False})
        try:
            found = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
            return [record for partition in sorted(found.partitions) for record in _drain(consumer, topic, partition)]
        finally:
            consumer.close()

    def delete_before(self, topic: str, offsets: dict[int, int]) -> None:
        """Delete the records before an offset, as retention would."""
        admin = AdminClient(self.settings)
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for deleted in admin.delete_records(wanted).values():
            deleted.result()

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Leave a group's position; a coordinator that has just been elected may need a moment."""
        consumer = Consumer({**self.settings, "group.id": group, "enable.auto.commit": False})
        positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        try:
            when_ready(lambda: consumer.commit(offsets=positions, asynchronous=False))
        finally:
            consumer.close()


def _partitions_of(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(timeout=READ_TIMEOUT_S).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def _drain(consumer: Consumer, topic: str, partition: int) -> list[Record]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT_S)
    consumer.assign([TopicPartition(topic, partition, low)])
    deadline = time.monotonic() + READ_TIMEOUT_S
    records: list[Record] = []
    position = low
    while position < high:
        for message in consumer.consume(1000, 0.2):
            position = (message.offset() or 0) + 1
            records.append(_record(message))
        # Where the tail is compacted or aborted, no message brings the last offset: the position does.
        position = max(position, consumer.position([TopicPartition(topic, partition)])[0].offset)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}-{partition} ends at {high}, read up to {position}")
    return records


def _record(message: Message) -> Record:
    found: Any = message.headers() or []
    headers = tuple((name, value or b"") for name, value in found)
    value: Any = message.value()
    key: Any = message.key()
    return Record(value, key, headers, message.partition() or 0, message.timestamp()[1])
