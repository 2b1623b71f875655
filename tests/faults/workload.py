"""Clients of a cluster that is hurt, with their memory of it.

Producers are idempotent and wait for all replicas; nothing of theirs times out before a cluster has recovered, so every
record has a known outcome in the end. Readers take everything from the beginning and never go back; a group does so
together. An error that a client must never see is kept as a complaint.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.core.ids import TopicPartition as Name
from moldau.testing.invariants import Kept, Sent, label, read_label

SEND_EVERY_S = 0.01
PADDING_BYTES_MAX = 3_000
FLUSH_TIMEOUT_S = 90.0
LOG_DEBUG = 7
IMPATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "topic.metadata.refresh.interval.ms": 2_000,  # or a member whose first question was lost asks again in 5 minutes
    "socket.timeout.ms": 4_000,
    "log_level": 0,
}
"""Settings of a client that notices soon what happened: the bound on liveness is the cluster's, not librdkafka's
defaults."""


class Client:
    """Work in a thread until told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.complaints: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # a thread has nobody to raise to
            self.complaints.append(f"{self.name} ended with {error!r}")

    def _work(self) -> None:
        raise NotImplementedError


class Sender(Client):
    """Sender of numbered records to random partitions, which remembers where they are."""

    def __init__(self, name: str, partitions: Sequence[Name], seed: int) -> None:
        super().__init__(name)
        self.sent: list[Sent] = []
        self._partitions = partitions
        self._random = random.Random(seed)
        self._newest: dict[Name, float] = {}

    def acknowledged_since(self, moment: float) -> set[Name]:
        """Partitions that have acknowledged a record sent after `moment` (monotonic)."""
        return {partition for partition, sent_at in self._newest.copy().items() if sent_at >= moment}

    def _new_value(self, number: int) -> bytes:
        return label(self.name, number) + b" " + self._random.randbytes(self._random.randrange(PADDING_BYTES_MAX))

    def _acknowledged(self, partition: Name, number: int, offset: int | None, sent_at: float) -> None:
        self.sent.append(Sent(partition, self.name, number, offset))
        self._newest[partition] = max(sent_at, self._newest.get(partition, 0.0))


class BusySender(Sender):
    """Sender by librdkafka, with several requests in flight."""

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[Name], seed: int) -> None:
        super().__init__(name, partitions, seed)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "request.timeout.ms": 4_000,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 300,
                "compression.type": self._random.choice(["none", "lz4", "zstd"]),
                **IMPATIENT,
            }
        )

    def _work(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._send(number)
            number += 1
            self._producer.poll(SEND_EVERY_S)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left:
            self.complaints.append(f"{self.name}: {left} records had no outcome after {FLUSH_TIMEOUT_S:g} s")

    def _send(self, number: int) -> None:
        partition = self._random.choice(self._partitions)
        on_delivery = self._remembering(partition, number, time.monotonic())
        value = self._new_value(number)
        try:
            self._producer.produce(partition.topic, value, partition=partition.partition, on_delivery=on_delivery)
        except BufferError:
            self._producer.poll(1.0)

    def _remembering(
        self, partition: Name, number: int, sent_at: float
    ) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._acknowledged(partition, number, message.offset(), sent_at)
                return
            self.sent.append(Sent(partition, self.name, number, None))
            if len(self.complaints) < 5:
                self.complaints.append(f"{self.name}: {partition} was not written: {error}")

        return delivered


class Reader(Client):
    """Reader of all partitions from the beginning, on its own."""

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[Name]) -> None:
        super().__init__(name)
        self.seen: list[Kept] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # an offset that is gone is a loss, and must be heard of
                "fetch.wait.max.ms": 200,
                **IMPATIENT,
            }
        )
        self._consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])

    def _work(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                _remember(message, self.seen, self.complaints, self.name)
        self._consumer.close()


class Member(Client):
    """A member of a group that reads everything together and commits what it has read. What it does in the group is
    in `log`, for those who have to find out why it read nothing."""

    def __init__(self, name: str, bootstrap: str, group: str, topics: Sequence[str], log: Path) -> None:
        super().__init__(name)
        self.seen: list[Kept] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 200,
                **IMPATIENT,
                "debug": "cgrp",
                "log_level": LOG_DEBUG,
            },
            logger=_logger_to(log),
        )
        self._consumer.subscribe(list(topics))

    def _work(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(500, 0.2)
            for message in messages:
                _remember(message, self.seen, self.complaints, self.name)
            if messages:
                self._consumer.commit(asynchronous=True)
        self._consumer.close()


def _logger_to(file: Path) -> logging.Logger:
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.Logger(file.stem, logging.DEBUG)
    logger.addHandler(handler)
    return logger


RETRIED = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # a broker that has just come back, before it has read the store
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""Errors that librdkafka reports and gets over by itself."""


def _remember(message: Message, seen: list[Kept], complaints: list[str], name: str) -> None:
    error = message.error()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if error is None and topic is not None and partition is not None and offset is not None:
        seen.append(Kept(Name(topic, partition), offset, *read_label(message.value() or b"")))
    elif error is not None and error.code() not in RETRIED and len(complaints) < 5:
        complaints.append(f"{name}: {topic}-{partition}@{offset}: {error}")
