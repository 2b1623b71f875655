"""Positions of queries as offsets of consumer groups."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from moldau.pipelines.run.groups import Groups, Reader, delete, readers_of_sink
from moldau.pipelines.topics import Cluster as Place
from moldau.pipelines.topics import when_ready
from moldau.testing.processes import ClusterOfProcesses
from tests.pipelines.clusters import Cluster
from tests.pipelines.fakes import spec
from tests.pipelines.specs import sink, source
from tests.tools.java_tools import JavaTools

TIMEOUT_S = 30.0
DESCRIBE = ("consumer.group.ConsumerGroupCommand", "--describe", "--group")


def _described(tools: JavaTools, group: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Kafka's own tool: offset and lag by topic and partition."""
    lines = [line.split() for line in tools.tool(*DESCRIBE, group).splitlines()]
    header = next(words for words in lines if "CURRENT-OFFSET" in words)
    columns = [header.index(name) for name in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG")]
    found = ([words[column] for column in columns] for words in lines if words and words[0] == group)
    return {(topic, partition): (offset, lag) for topic, partition, offset, lag in found}


def _reader(cluster: Cluster, *topics: str, pattern: str | None = None) -> Reader:
    return Reader(Place(cluster.bootstrap), topics, pattern)


@pytest.fixture
def group() -> str:
    return f"visits.{uuid.uuid4().hex[:8]}"


@contextmanager
def _committing(group: str, *reads: Reader) -> Iterator[tuple[Groups, list[str]]]:
    said: list[str] = []
    groups = Groups({group: reads}, said.append)
    try:
        yield groups, said
    finally:
        groups.close()


def test_kafkas_own_tool_shows_the_position_and_the_lag(cluster: Cluster, group: str, kafka_classpath: str) -> None:
    one, two = cluster.new_topic("one", partitions=2), cluster.new_topic("two")
    cluster.send(one, ["a"] * 10)
    cluster.send(two, ["b"] * 4)
    with _committing(group, _reader(cluster, one), _reader(cluster, pattern="two-.*")) as (groups, said):
        groups.commit(group, {one: {0: 3}})
        groups.commit(group, {one: {0: 7, 1: 0}, two: {0: 4}})
    assert said == []
    tools = JavaTools(kafka_classpath, cluster.bootstrap)
    assert _described(tools, group) == {(one, "0"): ("7", "3"), (one, "1"): ("0", "0"), (two, "0"): ("4", "0")}
    assert delete(Place(cluster.bootstrap), [group, "visits.never-there"]) == {}
    assert group not in tools.tool("consumer.group.ConsumerGroupCommand", "--list").split()


def test_a_group_with_a_member_is_told_once_and_written_again_when_it_is_free(cluster: Cluster, group: str) -> None:
    topic = cluster.new_topic()
    with _committing(group, _reader(cluster, topic)) as (groups, said):
        with _member(cluster, group, topic):
            for offset in (1, 2):
                groups.commit(group, {topic: {0: offset}})
                _settled(groups)
        assert len(said) == 1
        assert f"group {group!r} cannot be written" in said[0]
        groups.commit(group, {topic: {0: 3}})
        _settled(groups)
    assert len(said) == 1
    assert _offsets(cluster, group, topic) == 3


def test_positions_are_committed_across_restarts_of_the_broker(tmp_path: Path) -> None:
    """librdkafka's admin client ended the process at one of the first restarts."""
    broker = ClusterOfProcesses(tmp_path / "cluster", brokers=1)[1]
    broker.start()
    cluster = Cluster("restarted", broker.bootstrap)
    cluster.make("visits", 1)
    names = [f"visits.{number}" for number in range(4)]
    groups = Groups({name: [_reader(cluster, "visits")] for name in names}, lambda _: None)
    stopped, offset = threading.Event(), 0

    def commit() -> None:
        nonlocal offset
        while not stopped.wait(0.01):
            offset += 1
            for name in names:
                groups.commit(name, {"visits": {0: offset}})

    committing = threading.Thread(target=commit)
    committing.start()
    try:
        for _ in range(4):
            broker.kill9()
            broker.start()
            _until_committed(cluster, names[0], offset)
    finally:
        stopped.set()
        committing.join()
    _until_committed(cluster, names[-1], offset)
    groups.close()
    broker.kill9()


def _until_committed(cluster: Cluster, group: str, offset: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while _offsets(cluster, group, "visits") < offset:
        assert time.monotonic() < deadline


def test_topics_of_another_cluster_are_committed_there(
    cluster: Cluster, moldau_cluster_only: Cluster, group: str
) -> None:
    here, there = cluster.new_topic("here"), moldau_cluster_only.new_topic("there")
    with _committing(group, _reader(cluster, here), _reader(moldau_cluster_only, there)) as (groups, said):
        groups.commit(group, {here: {0: 1}, there: {0: 2}})
    assert said == []
    assert (_offsets(cluster, group, here), _offsets(moldau_cluster_only, group, there)) == (1, 2)


def test_a_topic_of_one_name_in_two_clusters_is_told_not_guessed(
    cluster: Cluster, moldau_cluster_only: Cluster, group: str
) -> None:
    with _committing(group, _reader(cluster, "both"), _reader(moldau_cluster_only, "both")) as (groups, said):
        groups.commit(group, {"both": {0: 1}})
        groups.commit(group, {"both": {0: 2}})
    assert len(said) == 1
    assert "both could be of either of two clusters" in said[0]


def test_a_cluster_that_does_not_answer_is_told_once(
    moldau_cluster_only: Cluster, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.pipelines.run.groups.REQUEST_TIMEOUT_S", 0.5)
    silent = Reader(Place("127.0.0.1:1"), ("gone",), None)
    here = moldau_cluster_only.new_topic()
    with _committing(group, silent, _reader(moldau_cluster_only, here)) as (groups, said):
        for offset in (1, 2):
            groups.commit(group, {"gone": {0: offset}, here: {0: offset}})
            _settled(groups)
        # so short a time may be over for the cluster that answers, too: the next batch brings the position again
        deadline = time.monotonic() + TIMEOUT_S
        while _offsets(moldau_cluster_only, group, here) != 2:
            assert time.monotonic() < deadline
            groups.commit(group, {"gone": {0: 2}, here: {0: 2}})
            _settled(groups)
    assert len(said) == 1


def test_the_topics_of_a_sink_are_those_of_all_its_streams(tmp_path: Path) -> None:
    made = spec(
        tmp_path,
        source("topic", "visits", topic=["a", "b"], format="raw"),
        source("topic", "others", pattern="c-.*", bootstrap="elsewhere:9092", format="raw"),
        source("topic", "names", topic="d", format="raw", **{"as": "table"}),
        sink("console", flows=("visits", "others", "names"), console=20),
    )
    found = readers_of_sink(made, made.sinks["out"])
    assert [(reader.cluster.bootstrap, reader.topics, reader.pattern) for reader in found] == [
        ("127.0.0.1:1", ("a", "b"), None),
        ("elsewhere:9092", (), "c-.*"),
    ]
    assert [found[1].reads(topic) for topic in ("c-1", "xc-1", "a")] == [True, False, False]


def _settled(groups: Groups) -> None:
    """Until the thread has sent what it was given."""
    assert groups.wait(TIMEOUT_S)


def _offsets(cluster: Cluster, group: str, topic: str) -> int:
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        [found] = when_ready(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S))
        return found.offset
    finally:
        consumer.close()


@contextmanager
def _member(cluster: Cluster, group: str, topic: str) -> Iterator[None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 10000,
        }
    )
    joined, leave = threading.Event(), threading.Event()

    def poll() -> None:
        consumer.subscribe([topic], on_assign=lambda *_: joined.set())
        while not leave.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert joined.wait(TIMEOUT_S)
        yield
    finally:
        leave.set()
        thread.join()
