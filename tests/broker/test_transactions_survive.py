"""Transactions whose coordinator, or whose partition's leader, is killed as by kill -9: each is whole or not there."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.coordinators.key_partition import partition_of
from moldau.core.internal_topics import TRANSACTIONS_TOPIC
from moldau.testing import ClusterInThread
from tests.broker.test_cluster_clients import QUICK, TIMEOUT_S, create

ID = "copier"
SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
PER_TRANSACTION = 5


def coordinator(kafka: ClusterInThread, *, other_than: int = -1) -> int:
    return kafka.wait_for_leader(TRANSACTIONS_TOPIC, partition_of(ID, 2), other_than=other_than)


def transactional(kafka: ClusterInThread) -> Producer:
    made = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": ID, **QUICK})
    made.init_transactions(TIMEOUT_S)
    return made


def write(producer: Producer, number: int) -> None:
    for index in range(PER_TRANSACTION):
        producer.produce("t", f"{number}-{index}".encode(), partition=index % 2)
    assert producer.flush(TIMEOUT_S) == 0


def read_committed(kafka: ClusterInThread, count: int) -> list[str]:
    """The records that readers of committed records get, and one more if there is one too many."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "none", "isolation.level": "read_committed", **QUICK}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
    try:
        found = consumer.consume(count, TIMEOUT_S)
        more = consumer.consume(1, 0.2)
        return sorted((each.value() or b"").decode() for each in (*found, *more))
    finally:
        consumer.close()


def expected(*numbers: int) -> list[str]:
    return sorted(f"{number}-{index}" for number in numbers for index in range(PER_TRANSACTION))


@pytest.mark.moldau(SETTINGS)
def test_a_transaction_outlives_its_coordinator(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", partitions=2)
    producer = transactional(moldau_cluster)
    producer.begin_transaction()
    write(producer, 0)
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, 1)
    first = coordinator(moldau_cluster)
    moldau_cluster.kill(first)
    coordinator(moldau_cluster, other_than=first)
    producer.commit_transaction(TIMEOUT_S)
    moldau_cluster.start(first)
    producer.begin_transaction()
    write(producer, 2)
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, 3)
    producer.commit_transaction(TIMEOUT_S)
    assert read_committed(moldau_cluster, 3 * PER_TRANSACTION) == expected(0, 1, 3)


@pytest.mark.moldau(SETTINGS)
def test_what_a_dead_producer_left_open_is_aborted_by_its_successor_at_the_next_coordinator(
    moldau_cluster: ClusterInThread,
) -> None:
    create(moldau_cluster, "t", partitions=2)
    zombie = transactional(moldau_cluster)
    zombie.begin_transaction()
    write(zombie, 0)
    first = coordinator(moldau_cluster)
    moldau_cluster.kill(first)
    coordinator(moldau_cluster, other_than=first)
    successor = transactional(moldau_cluster)
    successor.begin_transaction()
    write(successor, 1)
    successor.commit_transaction(TIMEOUT_S)
    assert read_committed(moldau_cluster, PER_TRANSACTION) == expected(1)
