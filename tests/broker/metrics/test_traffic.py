"""Counters of a scrape: they say what happened, and never go back."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.broker.metrics.traffic import FAMILIES, NAMES, TrafficMemory
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, Samples, scrape, value

DEADLINE_S = 20.0
RECORDS = 50
TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker({**ANY_PORT, "log.flush.policy": "group"}) as running:
        yield running


def create(observed: BrokerInThread, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": observed.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(DEADLINE_S)


def produce(observed: BrokerInThread, topic: str, count: int = RECORDS) -> None:
    """One request for each record, so that all but the first can go by the fast path."""
    producer = Producer({"bootstrap.servers": observed.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"record {number}", partition=0)
        assert producer.flush(DEADLINE_S) == 0


def consume(observed: BrokerInThread, topic: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(count, DEADLINE_S)) == count
    consumer.close()


def of(samples: Samples, name: str, topic: str) -> float:
    return value(samples, f"{TOPICS}{name}_total", topic=topic)


def test_records_bytes_and_requests_are_counted_by_topic_and_in_all(observed: BrokerInThread) -> None:
    create(observed, "counted")
    before = scrape(observed)
    produce(observed, "counted")
    consume(observed, "counted", RECORDS)
    after = scrape(observed)
    size = value(after, "kafka_log_log_size", topic="counted", partition="0")
    assert of(after, "messagesin", "counted") == RECORDS
    assert of(after, "bytesin", "counted") == size
    assert of(after, "totalproducerequests", "counted") == RECORDS
    assert of(after, "failedproducerequests", "counted") == 0
    assert of(after, "bytesout", "counted") >= size
    assert of(after, "totalfetchrequests", "counted") >= 1
    assert of(after, "failedfetchrequests", "counted") == 0
    grown = value(after, f"{TOPICS}messagesin_total") - value(before, f"{TOPICS}messagesin_total")
    assert grown == RECORDS


def test_the_fast_path_takes_nearly_every_batch_and_a_sync_serves_each(observed: BrokerInThread) -> None:
    create(observed, "fast")
    before = scrape(observed)
    produce(observed, "fast")
    after = scrape(observed)

    def grown(name: str) -> float:
        return value(after, name) - value(before, name)

    assert grown("moldau_fast_path_appends_total") >= RECORDS - 5
    assert grown("moldau_fast_path_appends_total") + grown("moldau_slow_path_appends_total") == RECORDS
    assert 1 <= grown("moldau_group_commit_rounds_total") <= grown("moldau_group_commit_waits_total")
    assert grown("moldau_group_commit_waits_total") == RECORDS


def test_a_refused_batch_is_a_failed_request(observed: BrokerInThread) -> None:
    create(observed, "compacted")
    admin = AdminClient({"bootstrap.servers": observed.bootstrap})
    admin.create_topics([NewTopic("keyed", 1, 1, config={"cleanup.policy": "compact"})])["keyed"].result(DEADLINE_S)
    produce(observed, "keyed", 1)  # without a key, which a compacted topic does not take
    samples = scrape(observed)
    assert of(samples, "failedproducerequests", "keyed") == 1
    assert of(samples, "totalproducerequests", "keyed") == 1
    assert of(samples, "messagesin", "keyed") == 0


def test_what_a_deleted_topic_brought_stays_in_the_sum(observed: BrokerInThread) -> None:
    create(observed, "gone")
    produce(observed, "gone", 3)
    before = scrape(observed)
    admin = AdminClient({"bootstrap.servers": observed.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(DEADLINE_S)
    create(observed, "gone")
    produce(observed, "gone", 1)
    after = scrape(observed)
    assert value(after, f"{TOPICS}messagesin_total") == value(before, f"{TOPICS}messagesin_total") + 1


def test_the_loop_is_idle_or_busy_for_all_of_the_time(observed: BrokerInThread) -> None:
    samples = scrape(observed)
    idle = value(samples, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
    assert 0 <= idle <= 1
    assert value(samples, "moldau_loop_busy_ratio") == pytest.approx(1 - idle)
    assert value(samples, "moldau_loop_busy_seconds_total") > 0


def test_one_topic_after_the_other_is_told() -> None:
    """Those of all counters in one step held the loop for 170 ms where 10,000 topics had been written to."""
    memory = TrafficMemory()
    memory._of_topic = {f"topic-{number}": [number] * len(NAMES) for number in range(100)}
    steps = memory._family(*FAMILIES[0])
    assert sum(1 for _ in steps) >= 100
