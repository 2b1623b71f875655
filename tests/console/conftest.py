"""One broker and one console for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.console.consoles import Asking, asking


@pytest.fixture(scope="module")
def kafka() -> Iterator[BrokerInThread]:
    with broker({"num.partitions": "2", "message.max.bytes": "20000000", "log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="module")
def producer(kafka: BrokerInThread) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 20_000_000, "log_level": 0})


@pytest.fixture(scope="module")
def console(kafka: BrokerInThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with asking(kafka.bootstrap, Path(tmp_path_factory.mktemp("console"))) as running:
        yield running
