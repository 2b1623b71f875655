"""The pytest plugin: the fixture `moldau_broker` is a fresh broker for one test.

The broker is imported when a test asks for it: a test run that needs none pays nothing for the plugin.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.brokers import BrokerInThread


@pytest.fixture
def moldau_broker(request: pytest.FixtureRequest) -> "Iterator[BrokerInThread]":
    """A running broker. `@pytest.mark.moldau({"num.partitions": "3"})` sets properties."""
    from moldau.testing.brokers import broker

    marker = request.node.get_closest_marker("moldau")
    with broker(marker.args[0] if marker is not None else None) as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "moldau(properties): properties of the broker behind `moldau_broker`")
