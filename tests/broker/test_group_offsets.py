"""Committed offsets and a real broker: across restarts, kill -9, the topic's end, and in Kafka's own tool."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.coordinators.key_partition import partition_of
from moldau.testing import broker
from moldau.testing.ports import free_ports
from tests.serving import Serving
from tests.tools.java_tools import JavaTools

TOPIC, GROUP = "t", "readers"
PARTITIONS = 4
TIMEOUT_S = 30
KILLS = 5
COMMITS_PER_ROUND = 200


@contextmanager
def simple_consumer(bootstrap: str) -> Iterator[Consumer]:
    """Commits without being a member."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def make_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)


def committed(consumer: Consumer) -> list[tuple[int, str | None]]:
    found = consumer.committed([TopicPartition(TOPIC, index) for index in range(PARTITIONS)], TIMEOUT_S)
    return [(each.offset, each.metadata) for each in found]


def test_offsets_and_their_notes_survive_a_restart() -> None:
    with broker({"log.flush.policy": "group"}) as running:
        make_topic(running.bootstrap)
        with simple_consumer(running.bootstrap) as consumer:
            offsets = [TopicPartition(TOPIC, 0, 5, "a note"), TopicPartition(TOPIC, 3, 7)]
            consumer.commit(offsets=offsets, asynchronous=False)
            running.restart()
            none = (-1001, None)
            assert committed(consumer) == [(5, "a note"), none, none, (7, None)]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    with broker() as running:
        make_topic(running.bootstrap)
        with simple_consumer(running.bootstrap) as consumer:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
            admin = AdminClient({"bootstrap.servers": running.bootstrap})
            admin.delete_topics([TOPIC])[TOPIC].result(TIMEOUT_S)
            make_topic(running.bootstrap)
            running.restart()
            assert [offset for offset, _ in committed(consumer)] == [-1001] * PARTITIONS


class Commits:
    """Commits one more, again and again, and notes what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self.sent = 0
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(bootstrap,))
        self._thread.start()

    def _run(self, bootstrap: str) -> None:
        with simple_consumer(bootstrap) as consumer:
            while not self._stop.is_set():
                self.sent += 1
                try:
                    consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.sent)], asynchronous=False)
                except KafkaException:
                    continue  # the broker is away: not acknowledged
                with self._progress:
                    self.acknowledged = self.sent
                    self._progress.notify_all()

    def wait_for_more(self, count: int) -> None:
        with self._progress:
            goal = self.acknowledged + count
            assert self._progress.wait_for(lambda: self.acknowledged >= goal, TIMEOUT_S), "commits have stopped"

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


def test_kill_9_in_the_middle_of_commits_loses_none_that_was_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    port = str(free_ports(1)[0])  # no other test is given it between a kill and the next start
    server = Serving(data, "--port", port)
    make_topic(server.bootstrap)
    commits = Commits(server.bootstrap)
    try:
        for _ in range(KILLS):
            commits.wait_for_more(COMMITS_PER_ROUND)
            server.kill()
            acknowledged = commits.acknowledged
            server = Serving(data, "--port", port)
            with simple_consumer(server.bootstrap) as consumer:
                assert committed(consumer)[0][0] >= acknowledged
        commits.finish()
        with simple_consumer(server.bootstrap) as consumer:
            assert commits.acknowledged <= committed(consumer)[0][0] <= commits.sent
    finally:
        commits.finish()
        if server.process.poll() is None:
            server.kill()


def test_kafkas_tool_reads_our_offsets(tmp_path: Path, kafka_classpath: str) -> None:
    with broker({"offsets.topic.num.partitions": "50"}, data=tmp_path) as running:
        make_topic(running.bootstrap)
        with simple_consumer(running.bootstrap) as consumer:
            consumer.commit(offsets=[TopicPartition(TOPIC, 2, 77, "a note")], asynchronous=False)
    log = tmp_path / f"__consumer_offsets-{partition_of(GROUP, 50)}" / f"{0:020}.log"
    said = JavaTools(kafka_classpath).dump([log], "--offsets-decoder")
    assert f'"group":"{GROUP}","topic":"{TOPIC}","partition":2' in said
    assert '"offset":77' in said
    assert '"metadata":"a note' in said  # confluent-kafka sends a NUL behind it
