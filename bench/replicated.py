"""What is measured on a cluster by librdkafka, the same client on both sides: end-to-end latency, and failover."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata  # type: ignore[attr-defined]  # its stubs hide it

from bench.kafka_cluster import NODES, Cluster

TIMEOUT_S = 120.0
LATENCY_WARM_UP = 200
STEADY_RECORDS = 50
SEND_EVERY_S = 0.005
QUIET = {"log_level": 0}


class Percentiles(NamedTuple):
    """Of milliseconds."""

    p50_ms: float
    p99_ms: float


class Failed(Exception):
    """The cluster did not do what was asked in time."""


class States:
    """What the cluster says of its partitions, asked of any node that lives."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def leaders(self, topic: str) -> list[int]:
        """Of each partition; -1 for none."""
        return [partition.leader for _, partition in sorted(self._partitions(topic).items())]

    def led_by(self, topics: Sequence[str], brokers: Sequence[int]) -> bool:
        """Whether any partition of these topics is led by one of these."""
        return any(leader in brokers for topic in topics for leader in self.leaders(topic))

    def are_whole(self, topic: str) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        partitions = self._partitions(topic).values()
        return all(len(partition.isrs) == NODES and partition.leader >= 0 for partition in partitions)

    def _partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        partitions: dict[int, PartitionMetadata] = (
            self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        )
        return partitions


def wait_until(condition: Callable[[], bool], what: str, every_s: float = 0.05) -> float:
    """Seconds until it held."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() > begun + TIMEOUT_S:
            raise Failed(what)
        time.sleep(every_s)
    return time.monotonic() - begun


def latency(bootstrap: str, topic: str, count: int, size: int) -> Percentiles:
    """One record at a time, acks=all, from `produce` to the hands of a consumer."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, **QUIET})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "fetch.wait.max.ms": 500, **QUIET})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        taken = [_round_trip(producer, consumer, topic, bytes(size)) for _ in range(count + LATENCY_WARM_UP)]
    finally:
        consumer.close()
    ordered = sorted(taken[LATENCY_WARM_UP:])
    return Percentiles(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])


def _round_trip(producer: Producer, consumer: Consumer, topic: str, value: bytes) -> float:
    begun = time.perf_counter()
    producer.produce(topic, value, partition=0)
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None:
        raise Failed(f"no record came: {message and message.error()}")
    milliseconds = (time.perf_counter() - begun) * 1000
    producer.poll(0)
    return milliseconds


def failover(cluster: Cluster, topic: str) -> float:
    """Seconds from the kill of the leader of partition 0 to the first acknowledgement of a record sent after it.

    Afterwards the node is back and every replica in sync."""
    states = States(cluster.bootstrap)
    wait_until(lambda: states.are_whole(topic), "the ISR was not whole")
    leader = states.leaders(topic)[0]
    sender = Sender(cluster.bootstrap, topic)
    sender.send_until(lambda: sender.acknowledged >= STEADY_RECORDS)
    seconds = sender.seconds_to_get_over(cluster.nodes[leader].kill)
    sender.close()
    cluster.nodes[leader].begin()
    cluster.nodes[leader].wait_until_it_answers()
    wait_until(lambda: states.are_whole(topic), "the node did not come back into the ISR")
    return seconds


class Sender:
    """Sends a numbered record every few milliseconds."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **QUIET})
        self.sent = 0
        self.acknowledged = 0
        self.last_acknowledged = -1

    def send_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise Failed("no record was acknowledged")
            self._producer.produce(self._topic, b"%d" % self.sent, partition=0, on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(SEND_EVERY_S)

    def seconds_to_get_over(self, trouble: Callable[[], None]) -> float:
        """From the beginning of the trouble to the acknowledgement of a record that was sent after it."""
        begun = time.monotonic()
        trouble()
        first_after = self.sent
        self.send_until(lambda: self.last_acknowledged >= first_after)
        return time.monotonic() - begun

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise Failed(str(error))
        self.acknowledged += 1
        self.last_acknowledged = max(self.last_acknowledged, int(message.value() or b"-1"))

    def close(self) -> None:
        self._producer.flush(TIMEOUT_S)
