"""Clusters for the tests of the clients: Moldau in this process, and Apache Kafka 4.3.1."""

from collections.abc import Iterator

import pytest

import moldau.testing
from bench.kafka import start_kafka


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker in this process, for a whole file of tests: topics get names of their own (`moldau_topic`)."""
    with moldau.testing.broker({"log.retention.ms": "-1"}) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module", params=["moldau", pytest.param("kafka-4.3.1", marks=pytest.mark.foreign)])
def any_bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Moldau, then Apache Kafka."""
    if request.param == "moldau":
        with moldau.testing.broker() as broker:
            yield broker.bootstrap
    else:
        with start_kafka() as server:
            yield server.bootstrap
