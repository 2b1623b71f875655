"""The brokers that we offer for other people's tests."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import aiokafka  # type: ignore[import-untyped]  # ships no types
import pytest
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from moldau.testing import BrokerInThread, async_broker, broker


def partitions_of(bootstrap: str, topic: str) -> int:
    return len(AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=10).topics[topic].partitions)


def test_a_fixture_gives_a_running_broker(moldau_broker: BrokerInThread) -> None:
    producer = Producer({"bootstrap.servers": moldau_broker.bootstrap})
    producer.produce("t", b"hello")
    assert producer.flush(10) == 0


@pytest.mark.moldau({"num.partitions": "7"})
def test_a_marker_sets_properties(moldau_broker: BrokerInThread) -> None:
    assert partitions_of(moldau_broker.bootstrap, "seven") == 7


def test_the_plugin_works_in_a_project_that_knows_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(moldau_broker): assert ':' in moldau_broker.bootstrap")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_two_brokers_do_not_get_into_each_others_way() -> None:
    with broker() as one, broker() as other:
        assert one.bootstrap != other.bootstrap
        assert one.data != other.data


def test_the_data_is_removed_unless_it_was_given_a_place(tmp_path: Path) -> None:
    with broker() as one:
        assert os.path.isdir(one.data)
    assert not os.path.exists(one.data)
    with broker(data=tmp_path / "kept"):
        pass
    assert (tmp_path / "kept" / "meta.properties").exists()


def test_a_restart_keeps_address_and_data() -> None:
    with broker({"num.partitions": "3"}) as kafka:
        before = kafka.bootstrap
        assert partitions_of(kafka.bootstrap, "t") == 3
        kafka.restart()
        assert kafka.bootstrap == before
        assert partitions_of(kafka.bootstrap, "t") == 3


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nmu\.partitions"), broker({"nmu.partitions": "3"}):
        pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_asyncio_code_runs_a_broker_in_its_own_loop(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def send_and_read() -> bytes:
        async with async_broker() as kafka:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
            await producer.start()
            await producer.send_and_wait("t", bytes(200_000) + b"end", partition=0)
            await producer.stop()
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            await consumer.seek_to_beginning()
            message = await consumer.getone()
            await consumer.stop()
            value: bytes = message.value
            return value

    loop = new_loop()
    try:
        assert loop.run_until_complete(send_and_read()).endswith(b"end")
    finally:
        loop.close()
