"""Kafka Streams 4.3.1 with exactly_once_v2: every count of every word, once and in order, whatever is killed."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing.processes import processes
from tests.clients.java_client import NEWEST, classpath_of
from tests.tools.java_tools import JavaTools
from tests.tools.running_tools import RunningTool
from tests.transaction_servers import SERVERS, server, until

APPLICATION = "count"
INPUT, OUTPUT = "words", "counts"
CHANGELOG, REPARTITION = f"{APPLICATION}-counts-changelog", f"{APPLICATION}-word-repartition"
PARTITIONS = 3
WORDS = tuple(f"word-{number}" for number in range(20))
TIMEOUT_S = 120.0

BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
}
STREAMS = {
    "application.id": APPLICATION,
    "processing.guarantee": "exactly_once_v2",
    "statestore.cache.max.bytes": "0",  # every count is told, not only the newest at each commit
    "commit.interval.ms": "100",
    "num.stream.threads": "1",
    "num.standby.replicas": "1",
    "repartition.purge.interval.ms": "200",
    "consumer.session.timeout.ms": "3000",
    "consumer.heartbeat.interval.ms": "500",
    "consumer.group.protocol": "classic",
    "transaction.timeout.ms": "5000",
    "topic.segment.ms": "1000",
    "topic.min.cleanable.dirty.ratio": "0.01",
}


class World:
    """A cluster, and applications that count words in it."""

    def __init__(self, bootstrap: str, directory: Path, classpath: str, replicas: int) -> None:
        self.bootstrap = bootstrap
        self.tools = JavaTools(classpath, bootstrap)
        self.sent: dict[str, int] = defaultdict(int)
        self._directory = directory
        self._replicas = replicas
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in (INPUT, OUTPUT)]).values():
            made.result(TIMEOUT_S)

    def application(self, name: str) -> RunningTool:
        """An application with a state directory of its own, which a later one of this name finds again."""
        settings = {
            **STREAMS,
            "bootstrap.servers": self.bootstrap,
            "state.dir": str(self.state(name)),
            "replication.factor": str(self._replicas),
        }
        file = self._directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        classpath = classpath_of(f"kafka-streams-{NEWEST}", "StreamsCount")
        return RunningTool(classpath, "StreamsCount", file, INPUT, OUTPUT)

    def state(self, name: str) -> Path:
        return self._directory / f"state-{name}"

    def send(self, count: int) -> None:
        """Send so many words, evenly over words and partitions."""
        for number in range(count):
            word = WORDS[number % len(WORDS)]
            self._producer.produce(INPUT, word, partition=number % PARTITIONS)
            self.sent[word] += 1
        assert self._producer.flush(TIMEOUT_S) == 0

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """The first and the next offset of each partition."""
        with reader(self.bootstrap) as consumer:
            places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(place, TIMEOUT_S) for place in places]

    def committed(self, topic: str) -> int:
        """How many records a reader of committed ones finds in a topic."""
        found, ended = 0, 0
        with reader(self.bootstrap, {"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
            while ended < PARTITIONS:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None
                error = message.error()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                found, ended = (found + 1, ended) if error is None else (found, ended + 1)
        return found

    def lag(self) -> int:
        """How many words are not counted yet, by Kafka's ConsumerGroupCommand."""
        printed = self.tools.tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", APPLICATION)
        rows = [line.split() for line in printed.splitlines() if f" {INPUT} " in line]
        assert len(rows) == PARTITIONS, printed
        return sum(int(row[5]) for row in rows)


@contextmanager
def reader(bootstrap: str, settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[Consumer]:
    committed = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    with closing(Consumer({**committed, "auto.offset.reset": "earliest", "log_level": 0, **settings})) as consumer:
        yield consumer


class Counts:
    """What a reader of committed records sees of the output; it fails at the first count that is not the next one."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
        self.seen: dict[str, int] = defaultdict(int)

    def wait(self, condition: Callable[[dict[str, int]], bool], applications: Sequence[RunningTool]) -> None:
        def is_there() -> bool:
            for each in applications:
                assert not [line for line in each.lines if line.startswith("failed")], each.lines[-60:]
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                word, count = (message.key() or b"").decode(), int(message.value() or b"")
                assert count == self.seen[word] + 1, f"{word}: {count} comes after {self.seen[word]}"
                self.seen[word] = count
            return condition(self.seen)

        until(is_there, TIMEOUT_S)


def is_running(lines: list[str]) -> bool:
    return "state RUNNING" in lines


def has_standbys(lines: list[str]) -> bool:
    return any(line.startswith("standby ") for line in lines)


def test_counts_are_exact_though_brokers_and_applications_are_killed(kafka_classpath: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(processes(tmp_path / "cluster", 3, BROKER))
        world = World(cluster.bootstrap, tmp_path, kafka_classpath, replicas=3)
        counts = Counts(stack.enter_context(reader(cluster.bootstrap)))
        first = stack.enter_context(world.application("first"))
        second = stack.enter_context(world.application("second"))
        for each in (first, second):
            each.wait(is_running, TIMEOUT_S)
        world.send(3000)
        counts.wait(lambda seen: sum(seen.values()) >= 1000, (first, second))
        second.wait(has_standbys, TIMEOUT_S)
        cluster[2].kill9()
        world.send(3000)
        counts.wait(lambda seen: sum(seen.values()) >= 4000, (first, second))
        first.kill()
        cluster[2].start()
        world.send(3000)
        counts.wait(lambda seen: sum(seen.values()) >= 7000, (second,))
        returned = stack.enter_context(world.application("first"))
        returned.wait(is_running, TIMEOUT_S)
        second.kill()
        shutil.rmtree(world.state("second"))
        world.send(3000)
        emptied = stack.enter_context(world.application("second"))
        counts.wait(lambda seen: seen == world.sent, (returned, emptied))


@pytest.mark.parametrize("kind", SERVERS)
def test_the_topics_of_streams_are_purged_compacted_and_restored_from_and_tools_show_its_work(
    kind: str, kafka_classpath: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        bootstrap = stack.enter_context(server(kind, kafka_classpath, tmp_path / "server", BROKER))
        world = World(bootstrap, tmp_path, kafka_classpath, replicas=1)
        counts = Counts(stack.enter_context(reader(bootstrap)))
        application = stack.enter_context(world.application("only"))
        application.wait(is_running, TIMEOUT_S)
        world.send(400)
        counts.wait(lambda seen: seen == world.sent, (application,))
        until(lambda: all(first > 0 for first, _ in world.offsets(REPARTITION)), TIMEOUT_S)

        def is_compacted() -> bool:
            world.send(len(WORDS))  # a segment ends when it is written to
            counts.wait(lambda seen: seen == world.sent, (application,))
            return world.committed(CHANGELOG) < sum(world.sent.values()) // 2

        until(is_compacted, TIMEOUT_S)
        listed = world.tools.tool("TransactionsCommand", "list")
        assert f"{APPLICATION}-" in listed, listed
        application.kill()
        shutil.rmtree(world.state("only"))
        world.send(40)
        assert world.lag() == 40
        restarted = stack.enter_context(world.application("only"))
        counts.wait(lambda seen: seen == world.sent, (restarted,))
        restored = [int(line.split()[2]) for line in restarted.lines if line.startswith("restored ")]
        assert len(WORDS) <= sum(restored) < sum(world.sent.values()) // 2
        until(lambda: world.lag() == 0, TIMEOUT_S)
