"""Fixtures of every layer's tests. The `moldau_broker` fixture is the package's own (`moldau.testing.plugin`)."""

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.clients.java_client import JARS, NEWEST, OLDEST, TOOLS
from tests.seeds import seed_of
from tests.zookeeper_ensemble import Ensemble, running_ensemble

if TYPE_CHECKING:
    from tests.clients.adapters import Clients


pytest_plugins = ["pytester", "tests.selection"]


def _classpath(version: str) -> str:
    """The jars of `version` for `java -cp`. Missing ones fail: a test that does not run proves nothing."""
    made = (JARS[version] / ".fetched", TOOLS / f"driver-{version}" / "ClientDriver.class")
    if not all(path.exists() for path in made):
        pytest.fail(f"Kafka {version} is not in .tools: run `make tools` once (it needs Java 17 and Maven)")
    return f"{JARS[version]}/*"


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    """Apache Kafka 4.3.1 with its tools, for `java -cp`."""
    return _classpath(NEWEST)


@pytest.fixture(scope="session")
def old_kafka_classpath() -> str:
    """kafka-clients 0.10.2.0, for `java -cp`."""
    return _classpath(OLDEST)


@pytest.fixture(scope="session")
def _session_ensemble() -> Iterator[Ensemble]:
    with running_ensemble() as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper(_session_ensemble: Ensemble) -> Iterator[Ensemble]:
    """Three ZooKeeper servers that all serve; a test may do to them what it likes. Take a chroot of your own."""
    yield _session_ensemble
    _session_ensemble.heal()


@pytest.fixture(scope="session")
def _session_clients(kafka_classpath: str, old_kafka_classpath: str) -> "Iterator[Clients]":
    from tests.clients.adapters import Clients  # three client libraries: only for tests that ask for them

    clients = Clients({NEWEST: kafka_classpath, OLDEST: old_kafka_classpath})
    yield clients
    clients.close()


@pytest.fixture
def clients(_session_clients: "Clients") -> "Iterator[Clients]":
    """Real clients by name: `clients.connect("java-4.3.1", broker.bootstrap)`; closed when the test ends."""
    yield _session_clients
    _session_clients.close_clients()


@pytest.fixture
def seeded(request: pytest.FixtureRequest) -> Random:
    """Dice of the test's own (see `tests.seeds`)."""
    return Random(seed_of(request.node.nodeid))
