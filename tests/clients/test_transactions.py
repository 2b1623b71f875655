"""Transactions with real clients, on Apache Kafka 4.3.1 as well as on a broker of ours.

kafka-clients 4.3.1 speaks transaction version 2 (KIP-890), 3.9.1 and the others version 1.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from moldau.cli.transaction_queries import describe_transaction
from moldau.cli.wire import WireCluster
from moldau.cluster.features import TRANSACTION_VERSION, UpgradeType
from moldau.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.clients.interface import ClientError
from tests.clients.java_client import JARS, NEWEST, TOOLS, TV1_LAST, JavaDriver
from tests.clients.transactional import (
    CLIENTS,
    PYTHON_CLIENTS,
    End,
    JavaTransactions,
    TransactionalClient,
)
from tests.transaction_servers import SERVERS, new_topic, server, until

SPEAK_VERSION_2 = (f"java-{NEWEST}",)


@pytest.fixture(scope="module", params=SERVERS)
def bootstrap(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with server(request.param, kafka_classpath, tmp_path_factory.mktemp("server"), {}) as address:
        yield address


@pytest.fixture(scope="module")
def drivers() -> Iterator[dict[str, JavaDriver]]:
    """By the name of the client; their JVMs start when they are asked for something."""
    made = {}
    for version in (NEWEST, TV1_LAST):
        if not (TOOLS / f"driver-{version}" / "TransactionDriver.class").exists():
            pytest.fail(f"kafka-clients {version} is not in .tools: run `make tools` once")
        made[f"java-{version}"] = JavaDriver(version, f"{JARS[version]}/*", "TransactionDriver")
    yield made
    for driver in made.values():
        driver.close()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, bootstrap: str, drivers: dict[str, JavaDriver]) -> TransactionalClient:
    name: str = request.param
    return PYTHON_CLIENTS[name](bootstrap) if name in PYTHON_CLIENTS else JavaTransactions(drivers[name], bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


def numbered(first: int, last: int) -> list[bytes]:
    return [f"{number}".encode() for number in range(first, last)]


def wait_for(read: Callable[[], list[bytes]], expected: list[bytes]) -> None:
    """Until these values are read, and no others."""
    until(lambda: read() == expected)


def test_committed_records_are_read_when_they_are_committed(client: TransactionalClient, topic: str) -> None:
    with closing(client.producer(topic)) as producer:
        for first in (0, 10):
            producer.begin()
            producer.send(topic, *numbered(first, first + 10))
            assert client.read(topic, "read_uncommitted") == numbered(0, first + 10)
            assert client.read(topic, "read_committed") == numbered(0, first)
            producer.commit()
            wait_for(lambda: client.read(topic, "read_committed"), numbered(0, first + 10))


def test_aborted_records_are_never_read_as_committed(client: TransactionalClient, topic: str) -> None:
    with closing(client.producer(topic)) as producer:
        ends: tuple[End, ...] = ("commit", "abort", "abort", "commit")
        for number, end in enumerate(ends):
            producer.begin()
            producer.send(topic, *numbered(number, number + 1))
            producer.commit() if end == "commit" else producer.abort()
    wait_for(lambda: client.read(topic, "read_committed"), [b"0", b"3"])
    assert client.read(topic, "read_uncommitted") == numbered(0, 4)


def test_a_zombie_is_fenced_and_what_it_left_open_is_aborted(client: TransactionalClient, topic: str) -> None:
    zombie = client.producer(topic)
    zombie.begin()
    zombie.send(topic, b"of a zombie")
    with closing(client.producer(topic)) as producer:
        with pytest.raises(ClientError, match=r"(?i)fenced|epoch"):
            zombie.commit()
        producer.begin()
        producer.send(topic, b"of the living")
        producer.commit()
    wait_for(lambda: client.read(topic, "read_committed"), [b"of the living"])
    assert client.read(topic, "read_uncommitted") == [b"of a zombie", b"of the living"]
    with suppress(ClientError):  # some complain once more
        zombie.close()


def test_offsets_are_committed_with_what_was_made_of_the_records(
    client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    target, group = new_topic(bootstrap), f"group-of-{topic}"
    with closing(client.producer(f"source-{topic}")) as source:
        source.begin()
        source.send(topic, *numbered(0, 10))
        source.commit()
    with closing(client.producer(topic)) as producer:
        producer.copy(topic, target, 4, group, "commit")
        producer.copy(topic, target, 6, group, "abort")
        producer.copy(topic, target, 6, group, "commit")
    wait_for(lambda: client.read(target, "read_committed"), numbered(0, 10))
    assert client.read(target, "read_uncommitted") == [*numbered(0, 4), *numbered(4, 10), *numbered(4, 10)]


def epochs_of_two_transactions(client: TransactionalClient, bootstrap: str, topic: str) -> list[int]:
    """The producer's epoch in the first and in the second transaction of one producer."""
    epochs = []
    with closing(client.producer(topic)) as producer, WireCluster(bootstrap) as cluster:
        for _ in range(2):
            producer.begin()
            producer.send(topic, b"x")
            epochs.append(describe_transaction(cluster, topic).producer_epoch)
            producer.commit()
    return epochs


def test_version_2_has_an_epoch_for_each_transaction(
    request: pytest.FixtureRequest, client: TransactionalClient, bootstrap: str, topic: str
) -> None:
    first, second = epochs_of_two_transactions(client, bootstrap, topic)
    speaks_version_2 = request.node.callspec.params["client"] in SPEAK_VERSION_2
    assert second - first == (1 if speaks_version_2 else 0)


def test_a_cluster_at_version_1_is_spoken_to_in_version_1(
    bootstrap: str, drivers: dict[str, JavaDriver], topic: str
) -> None:
    set_transaction_version(bootstrap, 1, UpgradeType.SAFE_DOWNGRADE)
    try:
        client = JavaTransactions(drivers[f"java-{NEWEST}"], bootstrap)
        first, second = epochs_of_two_transactions(client, bootstrap, topic)
        assert first == second
        wait_for(lambda: client.read(topic, "read_committed"), [b"x", b"x"])
    finally:
        set_transaction_version(bootstrap, 2, UpgradeType.UPGRADE)


def set_transaction_version(bootstrap: str, level: int, way: UpgradeType) -> None:
    update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=way)
    with WireCluster(bootstrap) as cluster:
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert cluster.any().request(request, UpdateFeaturesResponse).error_code == 0
