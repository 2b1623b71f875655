"""The brokers that we offer for other people's tests."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import aiokafka  # type: ignore[import-untyped]  # ships no types
import pytest
import uvloop
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    ConfigResource,
)

from moldau.testing import BrokerInThread, async_broker, broker

KAFKA_INITIAL_DELAY_S = 3.0


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


def consumed(bootstrap: str, topic: str) -> bytes | None:
    """The value of a topic's first record, by a group that is new."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(10)
        return None if message is None or message.error() else message.value()
    finally:
        consumer.close()


def test_a_group_of_one_consumer_is_not_kept_waiting_for_a_second(
    moldau_broker: BrokerInThread, moldau_topic: str
) -> None:
    """Kafka's default lets the first member wait for 3 s."""
    producer = Producer({"bootstrap.servers": moldau_broker.bootstrap})
    producer.produce(moldau_topic, b"hello")
    assert producer.flush(10) == 0
    started = time.monotonic()
    assert consumed(moldau_broker.bootstrap, moldau_topic) == b"hello"
    assert time.monotonic() - started < KAFKA_INITIAL_DELAY_S


def test_a_test_may_set_what_test_brokers_set_otherwise() -> None:
    with broker({"group.initial.rebalance.delay.ms": "7"}) as kafka:
        assert setting(kafka.bootstrap, "group.initial.rebalance.delay.ms") == "7"
    with broker() as kafka:
        assert setting(kafka.bootstrap, "group.initial.rebalance.delay.ms") == "0"


def setting(bootstrap: str, name: str) -> str | None:
    broker_1001 = ConfigResource(ConfigResource.Type.BROKER, "1001")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [described] = admin.describe_configs([broker_1001]).values()
    value: str | None = described.result()[name].value
    return value


SHARING = """
    import moldau.testing

    seen = []

    def test_one(moldau_session_broker, moldau_topic):
        seen.append((moldau_session_broker.bootstrap, moldau_topic))

    def test_other(moldau_session_broker, moldau_topic):
        seen.append((moldau_session_broker.bootstrap, moldau_topic))

    def test_three_brokers(moldau_session_cluster):
        assert len(moldau_session_cluster.bootstrap.split(",")) == 3

    def test_they_shared_the_broker_and_no_topic():
        (broker, topic), (same, other) = seen
        assert broker == same
        assert topic != other
"""


def test_tests_share_a_broker_for_the_whole_run_and_no_topic(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SHARING)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)
