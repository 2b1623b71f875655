"""Consumer groups of every client: join, read, commit, rebalance, and go on after a restart of the broker."""

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]  # hidden by its stubs

from moldau.pipelines.topics import when_ready
from moldau.testing import BrokerInThread, broker
from tests.clients.group_clients import BROKER, KINDS, WAIT_S, Member, Members, are_committed
from tests.clients.java_client import NEWEST, OLDEST

PARTITIONS = range(4)
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
STATIC_KINDS = ("java-4.3.1 classic", "java-4.3.1 consumer", "confluent-kafka classic", "confluent-kafka consumer")
RANGE_KINDS = ("java-4.3.1 classic", "java-0.10.2.0", "confluent-kafka classic", "aiokafka", "kafka-python")

_names = itertools.count()


class Topic:
    """A new topic on a broker, and the group that reads it."""

    def __init__(self, bootstrap: str, partitions: int = len(PARTITIONS)) -> None:
        self.bootstrap = bootstrap
        self.name = f"topic-{next(_names)}"
        self.group = f"readers-of-{self.name}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        _done(self._admin.create_topics([NewTopic(self.name, partitions, 1)]))

    def grow(self, partitions: int) -> None:
        _done(self._admin.create_partitions([NewPartitions(self.name, partitions)]))

    def produce(self, count: int, partitions: range = PARTITIONS) -> None:
        """`count` records to each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for partition in partitions:
            for _ in range(count):
                producer.produce(self.name, b"value", partition=partition)
        assert producer.flush(WAIT_S) == 0

    def committed(self) -> dict[int, int]:
        """As the broker says, once it has read its log after a restart."""
        request = ConsumerGroupTopicPartitions(self.group)

        def ask() -> list[TopicPartition]:
            [answer] = self._admin.list_consumer_group_offsets([request], require_stable=True).values()
            return answer.result(WAIT_S).topic_partitions or []

        return {each.partition: each.offset for each in when_ready(ask) if each.offset >= 0}

    def state(self) -> str:
        [answer] = self._admin.describe_consumer_groups([self.group]).values()
        return str(answer.result(WAIT_S).state.name)


def _done(futures: dict[str, "Future[Any]"]) -> None:
    for future in futures.values():
        future.result(WAIT_S)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    """One broker for all; each test has a topic and a group of its own."""
    with broker(BROKER) as started:
        yield started


@pytest.fixture
def topic(running: BrokerInThread) -> Topic:
    return Topic(running.bootstrap)


@pytest.fixture
def members(kafka_classpath: str, old_kafka_classpath: str, tmp_path: Path) -> Iterator[Members]:
    started = Members({NEWEST: kafka_classpath, OLDEST: old_kafka_classpath}, tmp_path)
    yield started
    started.end()


def up_to(offset: int, partitions: range = PARTITIONS) -> dict[int, int]:
    return dict.fromkeys(partitions, offset)


def join(members: Members, kind: str, topic: Topic, instance: str | None = None) -> Member:
    return members.join(kind, topic.bootstrap, topic.group, topic.name, instance=instance)


def assert_read_once(topic_end: int, *owners: Member, partitions: range = PARTITIONS) -> None:
    """The owners together read every record, none twice."""
    for partition in partitions:
        read = [offset for owner in owners for offset in owner.read[partition]]
        assert sorted(read) == list(range(topic_end)), f"partition {partition}: {[owner.said() for owner in owners]}"


def produce_until_committed(topic: Topic, end: int, members: Members, member: Member) -> int:
    """Three records to each partition, after `end`, that the member reads and commits; the new end.

    A cooperative member reads on while it rebalances, when it cannot commit, and tries again only with the next records
    that it reads: it is given three more."""
    refused = member.refused_commits
    topic.produce(3)
    new_end = end + 3

    def is_answered() -> bool:
        return are_committed(up_to(new_end), member) or member.refused_commits > refused

    members.wait_until(is_answered, f"committed {new_end}, or refused")
    if are_committed(up_to(new_end), member):
        return new_end
    return produce_until_committed(topic, new_end, members, member)


@EVERY_KIND
def test_members_share_a_topic_as_they_come_and_leave(kind: str, members: Members, topic: Topic) -> None:
    topic.produce(5)
    first = join(members, kind, topic)
    members.wait_until_shared(PARTITIONS, first)
    members.wait_until_committed(up_to(5), first)
    second = join(members, kind, topic)
    members.wait_until_shared(PARTITIONS, first, second)
    topic.produce(5)
    members.wait_until_committed(up_to(10), first, second)
    second.leave()
    members.wait_until_shared(PARTITIONS, first)
    topic.produce(2)
    members.wait_until_committed(up_to(12), first, second)
    assert_read_once(12, first, second)
    first.leave()
    assert topic.state() == "EMPTY"
    assert topic.committed() == up_to(12)


@EVERY_KIND
def test_the_partitions_of_a_dead_member_go_to_the_others(kind: str, members: Members, topic: Topic) -> None:
    survivor, victim = join(members, kind, topic), join(members, kind, topic)
    members.wait_until_shared(PARTITIONS, survivor, victim)
    topic.produce(3)
    members.wait_until_committed(up_to(3), survivor, victim)
    victim.kill()
    members.wait_until_shared(PARTITIONS, survivor)
    topic.produce(3)
    members.wait_until_committed(up_to(6), survivor, victim)
    assert_read_once(6, survivor, victim)


@EVERY_KIND
def test_new_partitions_are_given_to_the_members(kind: str, members: Members, running: BrokerInThread) -> None:
    topic = Topic(running.bootstrap, partitions=2)
    member = join(members, kind, topic)
    members.wait_until_shared(range(2), member)
    topic.grow(5)
    members.wait_until_shared(range(5), member)
    topic.produce(3, range(5))
    members.wait_until_committed(up_to(3, range(5)), member)
    assert_read_once(3, member, partitions=range(5))


@EVERY_KIND
def test_a_group_goes_on_where_it_was_after_the_broker_restarts(kind: str, members: Members, tmp_path: Path) -> None:
    with broker(BROKER, tmp_path / "data") as restarting:
        topic = Topic(restarting.bootstrap)
        topic.produce(5)
        staying = join(members, kind, topic)
        members.wait_until_committed(up_to(5), staying)
        restarting.restart()
        end = produce_until_committed(topic, 5, members, staying)
        assert_read_once(end, staying)
        staying.leave()
        restarting.restart()
        assert topic.committed() == up_to(end)
        topic.produce(2)
        late = join(members, kind, topic)
        members.wait_until_committed(up_to(end + 2), late)
        assert_read_once(end + 2, staying, late)
        members.end()


@pytest.mark.parametrize("kind", STATIC_KINDS)
def test_a_static_member_comes_back_without_a_rebalance_of_the_others(kind: str, members: Members) -> None:
    timeout_ms = 30_000
    with broker({**BROKER, "group.consumer.session.timeout.ms": str(timeout_ms)}) as patient:
        topic = Topic(patient.bootstrap)

        def start(instance: str) -> Member:
            where = (topic.bootstrap, topic.group, topic.name)
            return members.join(kind, *where, instance=instance, session_timeout_ms=timeout_ms)

        one = start("one")
        members.wait_until_shared(PARTITIONS, one)
        two = start("two")
        members.wait_until_shared(PARTITIONS, one, two)
        had, rebalances = set(two.owned), one.rebalances
        two.leave()
        back = start("two")
        members.wait_until(lambda: back.owned == had, f"the restarted member owns {had} again")
        topic.produce(1)
        members.wait_until_committed(up_to(1), one, back)
        assert one.rebalances == rebalances, one.said()
        members.end()


def test_clients_of_all_kinds_share_one_group(members: Members, running: BrokerInThread) -> None:
    partitions = range(2 * len(RANGE_KINDS))
    topic = Topic(running.bootstrap, len(partitions))
    owners = [join(members, kind, topic) for kind in RANGE_KINDS]
    members.wait_until_shared(partitions, *owners)
    assert [len(owner.owned) for owner in owners] == [2] * len(owners)
    topic.produce(4, partitions)
    members.wait_until_committed(up_to(4, partitions), *owners)
    assert_read_once(4, *owners, partitions=partitions)


@pytest.mark.parametrize("new", ["java-4.3.1 consumer", "confluent-kafka consumer"])
def test_a_group_migrates_to_the_consumer_protocol_while_it_runs(new: str, members: Members, topic: Topic) -> None:
    old = join(members, "java-4.3.1 classic", topic)
    members.wait_until_shared(PARTITIONS, old)
    topic.produce(2)
    members.wait_until_committed(up_to(2), old)
    newcomer = join(members, new, topic)
    members.wait_until_shared(PARTITIONS, old, newcomer)
    topic.produce(2)
    members.wait_until_committed(up_to(4), old, newcomer)
    old.leave()
    members.wait_until_shared(PARTITIONS, newcomer)
    topic.produce(2)
    members.wait_until_committed(up_to(6), old, newcomer)
    assert_read_once(6, old, newcomer)
