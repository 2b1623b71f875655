"""Metrics that real clients push (KIP-714): librdkafka's and Kafka's own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, get, scrape, value
from tests.clients.adapters import Clients
from tests.clients.interface import Record

DEADLINE_S = 60.0


def configure(bootstrap: str, *words: str) -> None:
    command = [sys.executable, "-m", "moldau", "configs", "alter", "client-metrics", *words]
    subprocess.run([*command, "--bootstrap-server", bootstrap], check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker({**ANY_PORT, "client.telemetry.enable": "true"}) as running:
        configure(running.bootstrap, "everything", "--add-config", "metrics=[*],interval.ms=200")
        yield running


def pushed(observed: BrokerInThread, software: str) -> dict[str, Any]:
    """The first client of this library that has pushed figures."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        for each in json.loads(get(observed, "/clients").body)["clients"]:
            if software in each["software_name"] and each["metrics"]:
                found: dict[str, Any] = each
                return found
    raise AssertionError(f"nothing of {software}: {get(observed, '/clients').body!r}")


def test_librdkafka_pushes_what_the_subscription_names(observed: BrokerInThread) -> None:
    producer = Producer({"bootstrap.servers": observed.bootstrap, "client.id": "website", "enable.metrics.push": True})
    producer.produce("visits", b"value")
    assert producer.flush(DEADLINE_S) == 0
    client = pushed(observed, "confluent-kafka-python")
    assert (client["client_id"], client["address"], client["asked_for"]) == ("website", "127.0.0.1", ["*"])
    assert any(each["name"].startswith("org.apache.kafka.producer.") for each in client["metrics"])
    samples = scrape(observed)
    assert value(samples, "moldau_client_telemetry_pushes_total") >= 1
    assert value(samples, "moldau_client_telemetry_refused_total") == 0


def test_kafkas_own_client_pushes_too(observed: BrokerInThread, clients: Clients) -> None:
    clients.connect("java-4.3.1", observed.bootstrap).produce("visits", 0, [Record(b"v", b"k")])
    client = pushed(observed, "apache-kafka-java")
    names = {each["name"] for each in client["metrics"]}
    assert any(name.startswith("org.apache.kafka.producer.") for name in names), names


def test_without_a_receiver_nobody_pushes() -> None:
    with broker(ANY_PORT) as silent:
        producer = Producer({"bootstrap.servers": silent.bootstrap})
        producer.produce("visits", b"value")
        assert producer.flush(DEADLINE_S) == 0
        assert json.loads(get(silent, "/clients").body) == {"enabled": False, "left_out": 0, "clients": []}
        assert "moldau_client_telemetry_pushes_total" not in scrape(silent)
