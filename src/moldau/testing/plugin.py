"""The pytest plugin: `moldau_broker` is a fresh broker for one test, `moldau_cluster` a fresh cluster of three.

The brokers are imported when a test asks for them: a test run that needs none pays nothing for the plugin.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.brokers import BrokerInThread
    from moldau.testing.clusters import ClusterInThread


@pytest.fixture
def moldau_broker(request: pytest.FixtureRequest) -> "Iterator[BrokerInThread]":
    """A running broker. `@pytest.mark.moldau({"num.partitions": "3"})` sets properties."""
    from moldau.testing.brokers import broker

    with broker(_properties(request)) as running:
        yield running


@pytest.fixture
def moldau_cluster(request: pytest.FixtureRequest) -> "Iterator[ClusterInThread]":
    """Three running brokers, with the ids 1 to 3. The marker sets properties of all of them."""
    from moldau.testing.clusters import cluster

    with cluster(3, _properties(request)) as running:
        yield running


def _properties(request: pytest.FixtureRequest) -> dict[str, str] | None:
    marker = request.node.get_closest_marker("moldau")
    return marker.args[0] if marker is not None else None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "moldau(properties): properties of the brokers behind `moldau_broker` and `moldau_cluster`"
    )
