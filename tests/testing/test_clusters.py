"""The cluster that we offer for other people's tests."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.testing import ClusterInThread, cluster

TIMEOUT_S = 20.0


def create(kafka: ClusterInThread, topic: str, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    [created] = admin.create_topics([NewTopic(topic, 1, replicas, config={"min.insync.replicas": "2"})]).values()
    created.result(TIMEOUT_S)


def test_a_fixture_gives_three_brokers(moldau_cluster: ClusterInThread) -> None:
    assert moldau_cluster.running == [1, 2, 3]
    assert len(AdminClient({"bootstrap.servers": moldau_cluster.bootstrap}).list_topics(timeout=10).brokers) == 3


@pytest.mark.moldau({"default.replication.factor": "3", "num.partitions": "2"})
def test_a_marker_sets_properties_of_all(moldau_cluster: ClusterInThread) -> None:
    AdminClient({"bootstrap.servers": moldau_cluster.bootstrap}).list_topics("made", timeout=10)
    image = moldau_cluster.wait(lambda image: "made" in image.topics)
    assert [len(partition.replicas) for partition in image.topics["made"].partitions] == [3, 3]


def test_a_killed_broker_is_replaced_and_comes_back(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t")
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap, "acks": "all"})
    producer.produce("t", b"before")
    assert producer.flush(TIMEOUT_S) == 0
    leader = moldau_cluster.wait_for_leader("t")
    moldau_cluster.kill(leader)
    assert moldau_cluster.wait_for_leader("t", other_than=leader) != leader
    moldau_cluster.wait_for_isr("t", {1, 2, 3} - {leader})
    producer.produce("t", b"after")
    assert producer.flush(TIMEOUT_S) == 0
    moldau_cluster.start(leader)
    moldau_cluster.wait_for_isr("t", {1, 2, 3})


def test_a_stopped_broker_hands_its_leadership_over(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t")
    leader = moldau_cluster.wait_for_leader("t")
    moldau_cluster.stop(leader)
    assert moldau_cluster.wait_for_leader("t", other_than=leader) != leader


def test_waiting_for_what_does_not_come_ends() -> None:
    with cluster(1) as kafka, pytest.raises(TimeoutError, match=r"in 0\.1 s"):
        kafka.wait(lambda image: len(image.brokers) == 2, timeout_s=0.1)
