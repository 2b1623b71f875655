"""Transactions whose topic, records, disk or coordinator goes away at the worst moment: each ends once, as decided, and
every last stable offset comes to the end of its log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import TRANSACTIONS_TOPIC
from moldau.protocol.errors import ErrorCode
from moldau.protocol.fetch_values import READ_COMMITTED
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.testing import BrokerInThread
from tests.handlers.raw_transactions import Connection, Producer, name_of, until

STATE = TopicPartition(TRANSACTIONS_TOPIC, 0)
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
ID, TOPIC, PARTITIONS = "copier", "t", 4
OLD, NEW = 4, 5
READ_UNCOMMITTED = 0
TIMEOUT_S = 30


class Disks:
    """A broker with two data directories, and one transactional producer that has written to each partition."""

    def __init__(self, root: Path) -> None:
        self.kafka = BrokerInThread(f"{root / 'a'},{root / 'b'}", PROPERTIES)
        self.kafka.start()
        self.connection = Connection(self.kafka.bootstrap)
        self.create()
        self.producer = Producer(self.connection, ID)
        self.producer.begin()

    def create(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        assert self.connection.ask(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == ErrorCode.NONE

    def delete(self) -> None:
        answer = self.connection.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=TIMEOUT_S * 1000), 5)
        assert answer.responses[0].error_code == ErrorCode.NONE

    def write(self, version: int) -> None:
        """A record to each partition, in a transaction of this version of EndTxn."""
        if version == OLD:
            self.producer.add({TOPIC: range(PARTITIONS)})
        for number in range(PARTITIONS):
            assert self.producer.produce(TOPIC, number, 11 if version == OLD else 12).endswith("NONE")

    def fail(self, partition: TopicPartition) -> None:
        """Let the directory of a partition fail."""

        async def fail() -> None:
            self.kafka.broker.services.replicas.get(*partition).log.fail(OSError("the disk is gone"))

        asyncio.run_coroutine_threadsafe(fail(), self.kafka._loop).result(TIMEOUT_S)

    def home_of(self, partition: TopicPartition) -> str | None:
        return self.kafka.broker.services.logs.home_of(partition)

    def restart(self, *, is_killed: bool) -> None:
        self.connection.close()
        (self.kafka.kill if is_killed else self.kafka.stop)()
        self.kafka.start()
        self.connection = self.producer.connection = Connection(self.kafka.bootstrap)

    def ends(self, isolation: int) -> list[int]:
        """How far readers get in each partition."""
        asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(PARTITIONS)]
        topics = [ListOffsetsTopic(name=TOPIC, partitions=asked)]
        answer = self.connection.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 5)
        return [each.offset for each in answer.topics[0].partitions]

    @property
    def is_stable(self) -> bool:
        return self.ends(READ_COMMITTED) == self.ends(READ_UNCOMMITTED)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    made = Disks(tmp_path)
    yield made
    made.connection.close()
    made.kafka.stop()


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_decision_waits_for_the_partitions_of_a_failed_disk_and_no_others(
    disks: Disks, version: int, is_killed: bool
) -> None:
    disks.write(version)
    homes = [disks.home_of(TopicPartition(TOPIC, number)) for number in range(PARTITIONS)]
    lost = [number for number, home in enumerate(homes) if home != disks.home_of(STATE)]
    disks.fail(TopicPartition(TOPIC, lost[0]))
    assert disks.producer.end(version).startswith("NONE")
    until(lambda: disks.ends(READ_COMMITTED) == [-1 if number in lost else 2 for number in range(PARTITIONS)])
    assert disks.producer.state() == "PrepareCommit"
    disks.restart(is_killed=is_killed)
    disks.producer.wait_for("CompleteCommit")
    until(lambda: disks.is_stable)
    assert min(disks.ends(READ_COMMITTED)) >= 2


@pytest.mark.parametrize("version", [OLD, NEW])
def test_without_the_disk_of_its_coordinator_a_transaction_stays_open_until_it_is_back(
    disks: Disks, version: int
) -> None:
    disks.write(version)
    disks.fail(STATE)
    assert disks.producer.end(version) == "NOT_COORDINATOR"
    disks.restart(is_killed=False)
    until(lambda: disks.producer.end(version).startswith("NONE"))
    disks.producer.wait_for("CompleteCommit")
    until(lambda: disks.is_stable)
    assert disks.ends(READ_COMMITTED) == [2] * PARTITIONS


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_that_is_deleted_while_a_transaction_is_open_in_it_holds_up_nobody(
    disks: Disks, version: int, committed: bool, is_made_anew: bool
) -> None:
    """One that has its name by then gets the markers, which end nothing there: records of transactions name topics."""
    disks.write(version)
    disks.delete()
    if is_made_anew:
        disks.create()
    assert disks.producer.end_and_wait(version, committed=committed).startswith("NONE")
    if not is_made_anew:
        disks.create()
    assert disks.is_stable
    disks.write(version)
    assert disks.producer.end_and_wait(version).startswith("NONE")
    until(lambda: disks.is_stable)
    assert disks.ends(READ_COMMITTED) == [3 if is_made_anew else 2] * PARTITIONS


@pytest.mark.parametrize("is_killed", [False, True])
def test_records_that_are_deleted_take_their_open_transaction_along_and_it_can_go_on(
    disks: Disks, is_killed: bool
) -> None:
    disks.write(NEW)
    to_the_end = [DeleteRecordsPartition(partition_index=number, offset=-1) for number in range(PARTITIONS)]
    topics = [DeleteRecordsTopic(name=TOPIC, partitions=to_the_end)]
    answer = disks.connection.ask(DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_S * 1000), 2)
    assert {name_of(each.error_code) for each in answer.topics[0].partitions} == {"NONE"}
    assert disks.ends(READ_COMMITTED) == [1] * PARTITIONS
    assert disks.producer.produce(TOPIC, 0, sequence=1).endswith("NONE")
    assert disks.ends(READ_COMMITTED) == [1] * PARTITIONS
    if is_killed:
        disks.restart(is_killed=True)
    until(lambda: disks.producer.end(NEW).startswith("NONE"))
    disks.producer.wait_for("CompleteCommit")
    until(lambda: disks.is_stable)
    assert disks.ends(READ_COMMITTED) == [3, 2, 2, 2]
