"""A cluster that Apache Kafka before 2.8 left in ZooKeeper: its topics have no ids, and get them with their records."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient  # type: ignore[import-untyped]  # has no types

from bench.replicated import wait_until
from moldau.testing.processes import ClusterOfProcesses, processes
from tests.zookeeper_ensemble import Ensemble

TOPICS = ("one", "two")
RECORDS = 50
WAIT_S = 30


@pytest.fixture
def nodes(zookeeper: Ensemble) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.connect)
    client.start()
    yield client
    client.stop()


def forget_ids(root: str, zookeeper: KazooClient, cluster: ClusterOfProcesses) -> Callable[[], list[str]]:
    """Take the topics' ids away, as if they had never been; returns who reads which they have now."""
    for topic in zookeeper.get_children(f"{root}/brokers/topics"):
        path = f"{root}/brokers/topics/{topic}"
        replicas = json.loads(zookeeper.get(path)[0])["partitions"]
        zookeeper.set(path, json.dumps({"version": 1, "partitions": replicas}).encode())
        zookeeper.set(f"{path}/partitions", b"")
    for broker in cluster.brokers.values():
        for file in Path(broker.data).glob("*/partition.metadata"):
            file.unlink()

    def ids() -> list[str]:
        nodes = [json.loads(zookeeper.get(f"{root}/brokers/topics/{topic}")[0]) for topic in TOPICS]
        return [node["topic_id"] for node in nodes if "topic_id" in node]

    return ids


def read(cluster: ClusterOfProcesses, topic: str) -> list[bytes | None]:
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "log_level": 0})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = reader.consume(RECORDS, WAIT_S)
    reader.close()
    return [each.value() for each in found if each.error() is None]


@pytest.mark.parametrize("brokers", [1, 2])
def test_topics_keep_their_records_when_they_get_their_ids(
    tmp_path: Path, zookeeper: Ensemble, nodes: KazooClient, brokers: int
) -> None:
    root = f"/nameless-{tmp_path.name}"
    settings = {"default.replication.factor": str(brokers), "offsets.topic.num.partitions": "1"}
    with processes(tmp_path / "cluster", brokers, settings, zookeeper=zookeeper.connect + root) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        sent = [b"%d" % number for number in range(RECORDS)]
        for topic in TOPICS:
            for value in sent:
                producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        cluster.stop()
        ids = forget_ids(root, nodes, cluster)
        assert ids() == []
        cluster.start()
        wait_until(lambda: len(ids()) == len(TOPICS), "the topics got no ids")
        for _ in range(2):  # in the same life, and in the next one
            assert [read(cluster, topic) for topic in TOPICS] == [sent, sent]
            cluster.stop()
            cluster.start()
        assert list(tmp_path.glob("cluster/**/*-delete")) == []
