"""The pytest plugin: brokers as fixtures, fresh ones for one test or one set for the whole run.

`moldau_broker` and `moldau_cluster` (three brokers) are a test's own. `moldau_session_broker` and
`moldau_session_cluster` are started once for all tests that ask for them; `moldau_topic` is a name that no other test
has, so that tests which share a broker do not meet.

The brokers are imported when a test asks for them: a test run that needs none pays nothing for the plugin.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.brokers import BrokerInThread
    from moldau.testing.clusters import ClusterInThread


TOPIC_NAME_CHARACTERS_MAX = 200
"""Length of a topic's name: Kafka takes 249 characters, and a test may want to append something."""

_topic_numbers = count(1)


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


@pytest.fixture(scope="session")
def moldau_session_broker() -> "Iterator[BrokerInThread]":
    """A running broker that all tests of the run share; no marker sets its properties."""
    from moldau.testing.brokers import broker

    with broker() as running:
        yield running


@pytest.fixture(scope="session")
def moldau_session_cluster() -> "Iterator[ClusterInThread]":
    """Three running brokers that all tests of the run share: none of them may be killed."""
    from moldau.testing.clusters import cluster

    with cluster(3) as running:
        yield running


@pytest.fixture
def moldau_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of the run has; the topic is not made."""
    test = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:TOPIC_NAME_CHARACTERS_MAX]
    return f"{test}-{next(_topic_numbers)}"


def _properties(request: pytest.FixtureRequest) -> dict[str, str] | None:
    marker = request.node.get_closest_marker("moldau")
    return marker.args[0] if marker is not None else None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "moldau(properties): properties of the brokers behind `moldau_broker` and `moldau_cluster`"
    )
