"""Every metric that a dashboard or an alert asks for is served."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition, libversion

from moldau.broker.metrics import process
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.boards import KAFKA_EXPORTER, STRIMZI, alert_queries, dashboard, dashboard_queries, names_in
from tests.broker.metrics.scraping import ANY_PORT, Samples, get, scrape

DEADLINE_S = 20.0
SOFTWARE = "kafka_server_socket_server_metrics_connections"


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker(ANY_PORT) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("visits", b"one")
        assert producer.flush(DEADLINE_S) == 0
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("visits", 0, 0)], asynchronous=False)
        yield running
        consumer.close()


@pytest.fixture(scope="module")
def samples(observed: BrokerInThread) -> Samples:
    return scrape(observed)


@pytest.mark.parametrize("name", [*STRIMZI, *KAFKA_EXPORTER])
def test_a_metric_of_a_public_board_is_served(samples: Samples, name: str) -> None:
    assert samples[name]


@pytest.mark.parametrize(("panel", "query"), list(dashboard_queries()))
def test_a_panel_of_our_board_asks_for_what_is_served(samples: Samples, panel: str, query: str) -> None:
    assert names_in(query)
    assert names_in(query) <= samples.keys(), panel


@pytest.mark.parametrize("query", alert_queries())
def test_an_alert_asks_for_what_is_served(samples: Samples, query: str) -> None:
    assert names_in(query) <= samples.keys()


def cells(x: int, y: int, w: int, h: int) -> Iterator[tuple[int, int]]:
    return itertools.product(range(x, x + w), range(y, y + h))


def test_no_two_panels_lie_on_each_other() -> None:
    panels = dashboard()["panels"]
    places = [set(cells(**panel["gridPos"])) for panel in panels]
    assert all(one.isdisjoint(other) for one, other in itertools.combinations(places, 2))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_connected_clients_are_told_by_their_software(samples: Samples) -> None:
    version = libversion()[0]
    found = [dict(labels) for labels in samples[SOFTWARE]]
    assert {"librdkafka", "confluent-kafka-python"} & {each["clientSoftwareName"] for each in found}
    assert any(version in each["clientSoftwareVersion"] for each in found)


def test_software_beyond_the_limit_is_counted_together(
    observed: BrokerInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SOFTWARE_MAX", 0)
    found = scrape(observed)[SOFTWARE]
    assert [dict(labels)["clientSoftwareName"] for labels in found] == ["other"]
    assert sum(found.values()) >= 2


def test_nothing_is_served_twice_by_both_formats(observed: BrokerInThread) -> None:
    text = get(observed, "/metrics", accept="application/openmetrics-text").body.decode()
    helped = [line.split(" ")[2] for line in text.split("\n") if line.startswith("# HELP ")]
    assert len(helped) == len(set(helped))
