"""A broker that is short of descriptors refuses newcomers, serves those that it has, and stays."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    NewTopic,
)

from tests.broker.raw import request_frame
from tests.serving import Serving

FILES_MAX = 256
ATTEMPTS = 1_000
WIDE_FILES_MAX = 128
PARTITIONS = 160
TIMEOUT_S = 30.0
API_VERSIONS = 18
SOON_AGAIN = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
WIDE = {"log.flush.policy": "os"}  # so many syncs would be the most of what the test takes
BUSY = {
    # Small and often, so that files are made, opened, and checkpoints written all the time.
    "log.segment.bytes": "20000",
    "log.index.interval.bytes": "1024",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "offsets.topic.num.partitions": "4",
}


@contextmanager
def serving(directory: Path, files_max: int, overrides: Mapping[str, str]) -> Iterator[Serving]:
    arguments = [part for name, value in overrides.items() for part in ("--override", f"{name}={value}")]
    running = Serving(directory / "data", "--port", "0", *arguments, under=["prlimit", f"--nofile={files_max}"])
    try:
        yield running
    finally:
        running.kill()


class Traffic:
    """A producer and a consumer of one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        make(bootstrap, topic, 1)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 10}
        )
        settings = {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **SOON_AGAIN, "enable.auto.commit": False})
        self._consumer.subscribe([topic])
        self._sent = 0
        self._errors: list[object] = []

    def flows(self, records: int = 100) -> None:
        """Enough records for several segments go all the way, and an offset is committed."""
        for _ in range(records):
            self._producer.produce(self._topic, b"%d:" % self._sent + b"x" * 1000, on_delivery=self._delivered)
            self._sent += 1
            self._producer.poll(0)
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self._errors == []
        self._receive(self._sent - records)
        self._consumer.commit(asynchronous=False)

    def reads_from_the_start(self) -> None:
        """Old segments, whose files were closed long ago."""
        self._consumer.seek(TopicPartition(self._topic, 0, 0))
        self._receive(0)

    def _receive(self, first: int) -> None:
        for number in range(first, self._sent):
            message = self._consumer.poll(TIMEOUT_S)
            assert message is not None
            assert int((message.value() or b"").partition(b":")[0]) == number

    def _delivered(self, error: object, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def crowd(port: int, attempts: int) -> Iterator[list[socket.socket]]:
    """Connections that want nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) for _ in range(attempts)]


def is_served(connection: socket.socket) -> bool:
    try:
        connection.sendall(request_frame(API_VERSIONS, 0, b""))
        return len(connection.recv(65536)) > 4
    except ConnectionError:
        return False


def test_a_crowd_is_refused_and_those_before_it_are_served(tmp_path: Path) -> None:
    with serving(tmp_path, FILES_MAX, BUSY) as server:
        traffic = Traffic(server.bootstrap, "busy")
        traffic.flows()
        with crowd(server.port, ATTEMPTS) as connections:
            traffic.flows()
            traffic.reads_from_the_start()
            served = sum(map(is_served, connections))
            assert FILES_MAX // 4 < served < FILES_MAX, "some have got in, and most have not"
            traffic.flows()
        newcomer = Traffic(server.bootstrap, "later")
        newcomer.flows()
        traffic.flows()
        traffic.close()
        newcomer.close()
        assert server.stop() == 0
        assert "offline" not in server.log
        assert 1 <= server.log.count("refusing") < 10


def test_more_partitions_than_descriptors_are_served_now_and_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path, WIDE_FILES_MAX, WIDE) as server:
        make(server.bootstrap, "wide", PARTITIONS)
        produce_to_each(server.bootstrap, "wide", PARTITIONS)
        assert count(server.bootstrap, "wide", PARTITIONS) == PARTITIONS
        assert server.stop() == 0
    with serving(tmp_path, WIDE_FILES_MAX, WIDE) as server:
        produce_to_each(server.bootstrap, "wide", PARTITIONS)
        assert count(server.bootstrap, "wide", PARTITIONS) == 2 * PARTITIONS
        server.kill()
    with serving(tmp_path, WIDE_FILES_MAX, WIDE) as server:
        assert count(server.bootstrap, "wide", PARTITIONS) == 2 * PARTITIONS
        assert "offline" not in server.log
        assert server.stop() == 0


def make(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **SOON_AGAIN})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)


def produce_to_each(bootstrap: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    errors: list[object] = []
    for partition in range(partitions):
        producer.produce(
            topic, b"v", partition=partition, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []


def count(bootstrap: str, topic: str, partitions: int) -> int:
    """Records that can be read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    ends = found = 0
    while ends < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            found += 1
        else:
            ends += 1
    consumer.close()
    return found
