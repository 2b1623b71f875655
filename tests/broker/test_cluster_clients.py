"""What clients see of a cluster whose brokers come and go: brokers in this process, killed as by kill -9."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.records.batch import Record, build_batch
from moldau.testing import ClusterInThread
from tests.broker.raw import RawClient

TIMEOUT_S = 20.0
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


def create(kafka: ClusterInThread, topic: str, replicas: int = 3, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    [created] = admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)]).values()
    created.result(TIMEOUT_S)


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> list[int]:
    """The offsets; raises KafkaException for a record that is refused."""
    outcomes: list[int | KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcomes.append(error or message.offset() or 0)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise KafkaException(outcome)
    return [outcome for outcome in outcomes if isinstance(outcome, int)]


def read(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", **QUICK})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        return [message.value() for message in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_an_idempotent_producer_goes_on_with_every_new_leader(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", min_insync_replicas="2")
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap, "enable.idempotence": True, **QUICK})
    sent = 0
    for _ in range(4):
        offsets = send(producer, "t", *(b"%d" % (sent + at) for at in range(50)))
        assert offsets == list(range(sent, sent + 50))
        sent += 50
        leader = moldau_cluster.wait_for_leader("t")
        moldau_cluster.kill(leader)
        moldau_cluster.wait_for_leader("t", other_than=leader)
        moldau_cluster.start(leader)
        moldau_cluster.wait_for_isr("t", {1, 2, 3})
    assert read(moldau_cluster.bootstrap, "t", sent) == [b"%d" % number for number in range(sent)]


def test_too_few_replicas_in_sync_refuse_acks_all_and_nothing_else(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", min_insync_replicas="2")
    leader = moldau_cluster.wait_for_leader("t")
    for number in {1, 2, 3} - {leader}:
        moldau_cluster.kill(number)
    moldau_cluster.wait_for_isr("t", {leader})
    settings = {"bootstrap.servers": moldau_cluster.bootstrap, "retries": 0, "enable.idempotence": False, **QUICK}
    with pytest.raises(KafkaException) as refused:
        send(Producer({**settings, "acks": "all"}), "t", b"refused")
    assert refused.value.args[0].code() == KafkaError.NOT_ENOUGH_REPLICAS
    assert send(Producer({**settings, "acks": 1}), "t", b"taken") == [0]


def test_a_record_that_one_replica_has_is_not_read_while_two_are_asked_for(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", min_insync_replicas="2")
    leader = moldau_cluster.wait_for_leader("t")
    send(Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK}), "t", b"committed")
    others = sorted({1, 2, 3} - {leader})
    for number in others:
        moldau_cluster.kill(number)
    moldau_cluster.wait_for_isr("t", {leader})
    send(Producer({"bootstrap.servers": moldau_cluster.bootstrap, "acks": 1, **QUICK}), "t", b"not yet")
    consumer = Consumer({"bootstrap.servers": moldau_cluster.bootstrap, "group.id": "none", **QUICK})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), TIMEOUT_S) == (0, 1)
        moldau_cluster.start(others[0])
        wait_for(lambda: consumer.get_watermark_offsets(TopicPartition("t", 0), TIMEOUT_S) == (0, 2))
    finally:
        consumer.close()


def test_the_last_replica_that_had_everything_is_waited_for(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", replicas=2)
    first = moldau_cluster.wait_for_leader("t")
    image = moldau_cluster.brokers[first].image
    (second,) = set(image.topics["t"].partitions[0].replicas) - {first}
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK})
    moldau_cluster.kill(second)
    moldau_cluster.wait_for_isr("t", {first})
    send(producer, "t", b"only the first has it")
    moldau_cluster.kill(first)
    moldau_cluster.wait(lambda image: image.topics["t"].partitions[0].leader == -1)
    moldau_cluster.start(second)
    assert moldau_cluster.wait(lambda image: second in image.brokers).topics["t"].partitions[0].leader == -1
    moldau_cluster.start(first)
    assert moldau_cluster.wait_for_leader("t") == first
    moldau_cluster.wait_for_isr("t", {first, second})
    assert read(moldau_cluster.bootstrap, "t", 1) == [b"only the first has it"]


def test_a_group_goes_on_where_it_was_when_its_coordinator_dies(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", partitions=3)
    producer = Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK})
    for partition in range(3):
        send(producer, "t", b"0", b"1", partition=partition)
    settings = {"bootstrap.servers": moldau_cluster.bootstrap, "auto.offset.reset": "earliest", **QUICK}
    group = {"group.id": "g", "enable.auto.commit": False, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
    consumer = Consumer({**settings, **group})
    consumer.subscribe(["t"])
    try:
        assert len(consumer.consume(6, TIMEOUT_S)) == 6
        consumer.commit(asynchronous=False)
        coordinator = coordinator_of(moldau_cluster.bootstrap, "g")
        moldau_cluster.kill(coordinator)
        for partition in range(3):
            send(producer, "t", b"2", partition=partition)
        assert [message.value() for message in consumer.consume(3, TIMEOUT_S)] == [b"2"] * 3
        wait_for(lambda: commits(consumer))
        wanted = [TopicPartition("t", partition) for partition in range(3)]
        assert [each.offset for each in consumer.committed(wanted, TIMEOUT_S)] == [3, 3, 3]
    finally:
        consumer.close()
    assert coordinator_of(moldau_cluster.bootstrap, "g") != coordinator


def coordinator_of(bootstrap: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    node = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).coordinator
    return int(node.id)


def commits(consumer: Consumer) -> bool:
    """Whether the new coordinator takes a commit already; until it has loaded, it says so."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


@pytest.mark.moldau({"leader.imbalance.check.interval.seconds": "1"})
def test_preferred_leaders_come_back_by_themselves(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t")
    first = moldau_cluster.wait_for_leader("t")
    moldau_cluster.stop(first)
    moldau_cluster.wait_for_leader("t", other_than=first)
    moldau_cluster.start(first)
    moldau_cluster.wait(lambda image: image.topics["t"].partitions[0].leader == first)


@pytest.mark.moldau({"unclean.leader.election.enable": "true"})
def test_an_unclean_election_happens_where_it_is_allowed(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t", replicas=2)
    first = moldau_cluster.wait_for_leader("t")
    (second,) = set(moldau_cluster.brokers[first].image.topics["t"].partitions[0].replicas) - {first}
    moldau_cluster.kill(second)
    moldau_cluster.wait_for_isr("t", {first})
    send(Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK}), "t", b"lost by choice")
    moldau_cluster.kill(first)
    moldau_cluster.start(second)
    assert moldau_cluster.wait_for_leader("t", other_than=first) == second


def test_a_topic_deleted_while_a_broker_is_away_does_not_come_back_with_it(moldau_cluster: ClusterInThread) -> None:
    create(moldau_cluster, "t")
    send(Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK}), "t", b"old")
    moldau_cluster.kill(3)
    moldau_cluster.wait(lambda image: 3 not in image.brokers)  # or the new topic may be given to it
    admin = AdminClient({"bootstrap.servers": moldau_cluster.bootstrap})
    [deleted] = admin.delete_topics(["t"]).values()
    deleted.result(TIMEOUT_S)
    moldau_cluster.wait(lambda image: "t" not in image.topics)
    create(moldau_cluster, "t", replicas=2)
    moldau_cluster.start(3)
    moldau_cluster.wait(lambda image: 3 in image.brokers)
    assert send(Producer({"bootstrap.servers": moldau_cluster.bootstrap, **QUICK}), "t", b"new") == [0]
    assert read(moldau_cluster.bootstrap, "t", 1) == [b"new"]
    assert not (Path(moldau_cluster.brokers[3].data) / "t-0").exists()


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_broker_that_has_no_replica_says_who_leads(moldau_cluster: ClusterInThread, version: int) -> None:
    create(moldau_cluster, "t", replicas=1)
    leader = moldau_cluster.wait_for_leader("t")
    other = moldau_cluster.brokers[leader % len(moldau_cluster.brokers) + 1]
    wait_for(lambda: "t" in other.image.topics)
    data = PartitionProduceData(index=0, records=build_batch([Record(0, 0, None, b"x", ())]))
    topic = TopicProduceData(name="t", topic_id=other.image.topics["t"].topic_id, partition_data=[data])
    with RawClient(other.bootstrap) as client:
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        answer = client.ask(0, version, request, ProduceResponse)
    (refused,) = answer.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:  # KIP-951
        assert refused.current_leader.leader_id == leader
        assert [each.node_id for each in answer.node_endpoints] == [leader]
