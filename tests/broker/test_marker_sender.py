"""Markers find the leaders of their partitions, are tried again, and are done with when the partition is."""

import asyncio
from collections.abc import Iterator

import pytest

from moldau.broker import marker_sender
from moldau.broker.marker_sender import PARTITIONS_MAX, MarkerDelivery
from moldau.coordinators.transactions.markers import Marker
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.k27_write_txn_markers import WritableTxnMarker
from tests.handlers.conftest import World
from tests.handlers.transactions import PlayedWriter, Producer

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


class Sending:
    """Markers of transactions of a broker that leads everything."""

    def __init__(self, world: World) -> None:
        Producer(world)  # so that there is a coordinator
        self.world = world
        self.writer = world.transactions.markers.local = PlayedWriter()
        self.done: list[bool] = []
        self._changed = asyncio.Event()

    def send(self, marker: Marker) -> MarkerDelivery:
        return self.world.transactions.markers.send("x", marker, self._done)

    def _done(self, is_complete: bool) -> None:
        self.done.append(is_complete)
        self._changed.set()

    def until_done(self, count: int = 1) -> None:
        async def wait() -> None:
            async with asyncio.timeout(10):
                while len(self.done) < count:
                    self._changed.clear()
                    await self._changed.wait()

        self.world.run(wait())

    def a_moment(self) -> None:
        async def wait() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self.world.run(wait())


@pytest.fixture
def sending() -> Iterator[Sending]:
    world = World({})
    world.create("a", 2)
    yield Sending(world)
    world.close()


def marker(producer_id: int = 7, *partitions: TopicPartition) -> Marker:
    return Marker(producer_id, 1, True, frozenset(partitions or (A, B)), 2)


def sent(sending: Sending) -> list[list[WritableTxnMarker]]:
    """The markers of each request."""
    return sending.writer.asked


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_only_partitions_that_did_not_take_the_marker_get_it_again(sending: Sending, code: ErrorCode) -> None:
    sending.writer.codes[A] = [code]
    sending.send(marker())
    sending.until_done()
    assert sending.done == [True]
    asked = [{each.name: sorted(each.partition_indexes) for each in one.topics} for (one,) in sending.writer.asked]
    assert asked == [{"a": [0, 1]}, {"a": [0]}]


def test_a_partition_that_knows_a_newer_epoch_is_done_with(sending: Sending) -> None:
    """Else the transaction would never end, and the id be of no use (KAFKA-19999)."""
    sending.writer.codes[A] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    sending.send(marker())
    sending.until_done()
    assert sending.done == [True]
    assert len(sending.writer.asked) == 1


def test_a_leader_that_knows_a_newer_coordinator_ends_the_delivery(sending: Sending) -> None:
    sending.writer.codes[A] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    sending.send(marker())
    sending.until_done()
    assert sending.done == [False]
    assert len(sending.writer.asked) == 1


def test_a_topic_that_was_deleted_gets_no_marker(sending: Sending) -> None:
    sending.send(marker(7, A, TopicPartition("gone", 0), TopicPartition("a", 9)))
    sending.until_done()
    ((sent,),) = sending.writer.asked
    assert [(each.name, each.partition_indexes) for each in sent.topics] == [("a", [0])]


def test_a_topic_that_is_deleted_while_its_leader_refuses_is_given_up(sending: Sending) -> None:
    sending.writer.codes[A] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000
    sending.send(marker(7, A))
    sending.a_moment()
    assert sending.done == []
    sending.world.ask(DeleteTopicsRequest(topic_names=["a"]), 5)
    asked = len(sending.writer.asked)
    sending.until_done()
    assert sending.done == [True]
    assert len(sending.writer.asked) == asked


def test_markers_of_one_turn_share_a_request_and_those_behind_wait_for_its_answer(sending: Sending) -> None:
    sending.writer.may_answer = False
    for producer_id in (1, 2, 3):
        sending.send(marker(producer_id))
    sending.a_moment()
    for producer_id in (4, 5):
        sending.send(marker(producer_id))
    sending.a_moment()
    sending.writer.release()
    sending.until_done(5)
    assert [[each.producer_id for each in one] for one in sending.writer.asked] == [[1, 2, 3], [4, 5]]


def test_a_marker_for_very_many_partitions_goes_in_several_requests(sending: Sending) -> None:
    """Each is written in one turn of the loop: ten thousand partitions at once held it for 450 ms."""
    sending.world.create("wide", 2 * PARTITIONS_MAX + 50)
    sending.send(marker(7, *(TopicPartition("wide", number) for number in range(2 * PARTITIONS_MAX + 50))))
    sending.until_done()
    asked = [
        [index for one in each for topic in one.topics for index in topic.partition_indexes] for each in sent(sending)
    ]
    assert [len(each) for each in asked] == [PARTITIONS_MAX, PARTITIONS_MAX, 50]
    assert sorted(index for each in asked for index in each) == list(range(2 * PARTITIONS_MAX + 50))


def test_markers_of_very_many_transactions_go_in_several_requests(sending: Sending) -> None:
    for producer_id in range(PARTITIONS_MAX + 1):
        sending.send(marker(producer_id, A))
    sending.until_done(PARTITIONS_MAX + 1)
    assert [len(each) for each in sent(sending)] == [PARTITIONS_MAX, 1]


def test_leaders_of_very_many_partitions_are_looked_for_in_turns(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_sender, "ROUTED_AT_ONCE", 3)
    sending.writer.codes[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    for producer_id in range(5):
        sending.send(marker(producer_id))
    sending.until_done(5)
    assert sending.done == [True] * 5
    assert [len(each) for each in sent(sending)][:2] == [2, 2]


def test_a_delivery_that_is_called_off_tells_nobody_and_is_not_repeated(sending: Sending) -> None:
    sending.writer.codes[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    delivery = sending.send(marker())
    sending.a_moment()
    delivery.cancel()
    sending.send(marker(8))
    sending.until_done()
    assert sending.done == [True]
    assert [one.producer_id for (one,) in sending.writer.asked] == [7, 8, 8]


def test_a_writer_that_fails_is_asked_again(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> object:
        monkeypatch.undo()
        raise OSError("disk")

    monkeypatch.setattr(sending.writer, "write", broken)
    sending.send(marker())
    sending.until_done()
    assert sending.done == [True]
    assert len(sending.writer.asked) == 1
