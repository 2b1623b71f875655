"""A program's seek holds, whatever the client asks the broker meanwhile."""

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

import moldau.testing
from moldau import JSON, Admin, ClientError, Consumer, Producer, aio
from moldau.client.seeks import Seeks
from moldau.testing.ports import free_ports
from tests.client.test_aio import run, send
from tests.clients.proxy import AnswerHoldingProxy

P, Q = ("visits", 0), ("visits", 1)


class Told:
    """Positions that librdkafka was told."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.seeks = Seeks(lambda place: self.places.append((place.partition, place.offset)))

    def seek(self, offset: int, partition: int = 0, *, is_assigned: bool = True) -> None:
        self.seeks.seek(TopicPartition("visits", partition, offset), is_assigned=is_assigned)

    def taken(self) -> list[tuple[int, int]]:
        places, self.places = self.places, []
        return places


@pytest.fixture
def told() -> Told:
    made = Told()
    made.seeks.assigned([P, Q], [])
    return made


@pytest.mark.parametrize("is_record", [True, False])
def test_nothing_is_told_before_a_partition_has_sent_something(told: Told, is_record: bool) -> None:
    told.seek(5)
    assert (told.taken(), told.seeks.are_waiting) == ([], True)
    assert told.seeks.came(Q, is_record=True)
    assert told.taken() == []
    assert not told.seeks.came(P, is_record=is_record), "it is from where nobody wants to be"
    assert (told.taken(), told.seeks.are_waiting) == ([(0, 5)], False)
    assert told.seeks.came(P, is_record=True)


def test_a_partition_that_has_sent_something_is_told_at_once_and_of_one_position_at_a_time(told: Told) -> None:
    assert told.seeks.came(P, is_record=True)
    told.seek(OFFSET_BEGINNING)
    assert told.taken() == [(0, OFFSET_BEGINNING)]
    told.seek(7)
    told.seek(9)
    assert told.taken() == []
    assert not told.seeks.came(P, is_record=True)
    assert told.taken() == [(0, 9)]


def test_what_is_wanted_of_a_partition_that_comes_again_is_told_again(told: Told) -> None:
    told.seeks.came(P, is_record=True)
    told.seek(5)
    told.seek(6, partition=1)
    assert told.taken() == [(0, 5)]
    told.seeks.revoked([P, Q])
    told.seeks.assigned([P], [])
    assert not told.seeks.came(P, is_record=True)
    assert told.taken() == [(0, 5)]
    assert told.seeks.came(P, is_record=True)
    told.seeks.revoked([P])
    told.seeks.assigned([P, Q], [])
    assert told.seeks.came(P, is_record=True), "a record has come from there: what was handled counts"
    assert told.seeks.came(Q, is_record=True), "another member had it meanwhile"
    assert told.taken() == []


def test_partitions_that_stay_keep_what_is_wanted_of_them(told: Told) -> None:
    told.seek(5)
    told.seeks.came(Q, is_record=False)
    told.seek(OFFSET_END, partition=1)
    assert told.taken() == [(1, OFFSET_END)]
    told.seeks.assigned([("visits", 2)], [P, Q])
    assert told.seeks.came(Q, is_record=True)
    assert not told.seeks.came(P, is_record=True)
    assert told.taken() == [(0, 5)]


@pytest.fixture
def holding() -> Iterator[AnswerHoldingProxy]:
    """A broker that clients reach through a proxy."""
    (port,) = free_ports(1)
    with AnswerHoldingProxy() as proxy:
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://{proxy.address}",
        }
        proxy.target = f"127.0.0.1:{port}"
        with moldau.testing.broker(addresses):
            Admin(proxy.address).create_topic("visits")
            with Producer(proxy.address, value=JSON) as producer:
                for number in range(4):
                    producer.send("visits", number)
            yield proxy


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_seek_holds_while_the_client_looks_up_where_to_begin(holding: AnswerHoldingProxy, start: str) -> None:
    with Consumer(
        "visits",
        group_id="clerks",
        bootstrap=holding.address,
        value=JSON,
        auto_offset_reset=start,  # type: ignore[arg-type]  # of two it is one
    ) as consumer:
        while not holding.holds.is_set():
            assert consumer.poll(0.05) is None
        consumer.seek("visits", 0, 2)
        holding.let_go()
        assert [record.value for record in consumer.records(limit=2)] == [2, 3]
        with Producer(holding.address, value=JSON) as producer:
            producer.send("visits", 4)
        assert [record.value for record in consumer.records(limit=1)] == [4], "it does not go back to where it began"
        consumer.seek("visits", 0, "earliest")
        consumer.seek("visits", 0, 1)
        assert [record.value for record in consumer.batch(3, 30.0)][:1] == [1]


def test_the_same_holds_for_asyncio(holding: AnswerHoldingProxy) -> None:
    async def work() -> None:
        async with aio.Consumer("visits", group_id="clerks", bootstrap=holding.address, value=JSON) as consumer:
            while not holding.holds.is_set():
                assert await consumer.poll(0.05) is None
            await consumer.seek("visits", 0, 2)
            holding.let_go()
            assert [record.value async for record in consumer.records(limit=2)] == [2, 3]
            await send(holding.address, "visits", 4)
            assert [record.value async for record in consumer.records(limit=1)] == [4]

    run(work)


def test_a_partition_of_nobody_here_cannot_seek(bootstrap: str, moldau_topic: str) -> None:
    with (
        Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap) as consumer,
        pytest.raises(ClientError, match=f"seek in {moldau_topic}-0"),
    ):
        consumer.seek(moldau_topic, 0, 2)
