"""Clients by the topics that they write and read."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.broker.metrics import topology
from moldau.requests import topic_clients
from moldau.requests.topic_clients import TopicClient, TopicClients
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, scrape

DEADLINE_S = 20.0
HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker(ANY_PORT) as running:
        yield running


def told(observed: BrokerInThread, name: str) -> set[tuple[str, str, str]]:
    found = [dict(labels) for labels in scrape(observed).get(name, {})]
    return {(each["topic"], each["client_id"], each["host"]) for each in found}


def produce(observed: BrokerInThread, client_id: str, *topics: str) -> Producer:
    producer = Producer({"bootstrap.servers": observed.bootstrap, "client.id": client_id, "linger.ms": 0})
    for topic in (*topics, *topics):  # the second one goes by the fast path
        producer.produce(topic, b"value")
        assert producer.flush(DEADLINE_S) == 0
    return producer


def test_who_writes_and_who_reads_is_told_while_they_are_connected(observed: BrokerInThread) -> None:
    producer = produce(observed, "website", "visits", "orders")
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": "g", "client.id": "counter"})
    for topic in ("visits", "orders"):
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(DEADLINE_S) is not None
    topics = ("visits", "orders")
    for _ in range(2):  # the second scrape finds no new notes
        assert {(topic, "website", HOST) for topic in topics} <= told(observed, "moldau_topic_writer")
        assert {(topic, "counter", HOST) for topic in topics} <= told(observed, "moldau_topic_reader")
    consumer.close()
    producer.flush(0)


def test_a_topic_that_was_refused_has_no_writer(observed: BrokerInThread) -> None:
    producer = Producer({"bootstrap.servers": observed.bootstrap, "client.id": "intruder", "message.timeout.ms": 2000})
    producer.produce("__consumer_offsets", b"value", partition=0)
    producer.flush(DEADLINE_S)
    assert all(client != "intruder" for _, client, _ in told(observed, "moldau_topic_writer"))


def test_clients_that_are_gone_age_and_the_oldest_make_room() -> None:
    now_ms = int(time.time() * 1000)
    many = [TopicClient("t", str(number), HOST) for number in range(topology.TOLD_MAX + 5)]
    merged = topology._merged({}, many, set(), now_ms)
    assert len(merged) == topology.TOLD_MAX
    newest = TopicClient("t", "newest", HOST)
    merged = topology._merged(merged, [newest], {("7", HOST)}, now_ms + topology.KEPT_MS)
    assert set(merged) == {newest} | ({many[7]} & set(many[5:]))


def test_notes_have_a_bound() -> None:
    clients = TopicClients()
    for number in range(topic_clients.NOTED_MAX + 5):
        clients.wrote("t", str(number), HOST)
        clients.read("t", None, HOST)
    writers, readers = clients.taken()
    assert len(writers) == topic_clients.NOTED_MAX
    assert readers == {TopicClient("t", "", HOST)}
    assert clients.taken() == (set(), set())
    clients.wrote("t", "c" * 32_767, HOST)
    ((_, kept, _),) = clients.taken()[0]
    assert len(kept) == topic_clients.CLIENT_ID_MAX
