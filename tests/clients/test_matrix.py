"""Every client library writes and reads with every codec and every acks, and finds its records after a restart."""

from collections.abc import Iterator

import pytest

from moldau.testing import BrokerInThread, broker
from tests.clients.adapters import Clients
from tests.clients.interface import ALL_CODECS, Acks, AtTimestamp, Client, ClientError, Codec, Record, numbered, values

NAMES = ("java-4.3.1", "java-0.10.2.0", "confluent-kafka", "aiokafka", "kafka-python")
NAMES_WITH_HEADERS = tuple(name for name in NAMES if name != "java-0.10.2.0")
"""Headers (KIP-82) and idempotence (KIP-98) came with the same Kafka 0.11."""

EARLIER_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[BrokerInThread]:
    with broker({"num.partitions": "2", "log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, clients: Clients, kafka: BrokerInThread) -> Client:
    connected: Client = clients.connect(request.param, kafka.bootstrap)
    return connected


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_records_come_back_as_they_were_sent(client: Client, codec: Codec) -> None:
    if codec not in client.codecs:
        with pytest.raises(ClientError):
            client.produce(f"sent-{client.name}", 0, numbered(1), codec=codec)
        return
    topic = f"sent-{client.name}-{codec}"
    sent = [*numbered(200, timestamp_ms=EARLIER_MS), Record(value=None, key=b"tombstone"), Record(value=b"")]
    assert client.produce(topic, 1, sent, codec=codec) == list(range(202))
    read = client.read(topic, 1, "earliest", 202)
    assert [(record.key, record.value) for record in read] == [(record.key, record.value) for record in sent]
    assert [record.offset for record in read] == list(range(202))
    assert [record.timestamp_ms for record in read[:200]] == [record.timestamp_ms for record in sent[:200]]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_is_served(client: Client, acks: Acks) -> None:
    topic = f"acks-{client.name}-{acks}"
    offsets = client.produce(topic, 0, numbered(50), acks=acks)
    assert offsets in (list(range(50)), [-1] * 50)
    assert values(client.read(topic, 0, "earliest", 50)) == values(numbered(50))


@pytest.mark.parametrize("client", NAMES_WITH_HEADERS, indirect=True)
def test_headers_are_kept(client: Client) -> None:
    sent = Record(value=b"v", headers=(("a", b"1"), ("a", b"2"), ("empty", b"")))
    client.produce(f"headers-{client.name}", 0, [sent])
    assert client.read(f"headers-{client.name}", 0, "earliest", 1)[0].headers == sent.headers


def test_reading_starts_at_an_offset_or_a_timestamp(client: Client) -> None:
    topic = f"seek-{client.name}"
    for start in (0, 100, 200):  # three batches, so that a batch's middle is hit too
        client.produce(topic, 0, numbered(100, start=start, timestamp_ms=EARLIER_MS))
    assert values(client.read(topic, 0, 150, 3)) == [b"v150", b"v151", b"v152"]
    assert values(client.read(topic, 0, AtTimestamp(EARLIER_MS + 250), 1)) == [b"v250"]
    assert values(client.read(topic, 0, AtTimestamp(EARLIER_MS), 1)) == [b"v0"]


@pytest.mark.parametrize("writer", NAMES)
def test_what_one_client_writes_all_others_read(writer: str, clients: Clients, kafka: BrokerInThread) -> None:
    producer: Client = clients.connect(writer, kafka.bootstrap)
    topic = f"shared-{writer}"
    expected: list[bytes | None] = []
    for codec in producer.codecs:
        if codec != "zstd":  # the client of 2017 does not know it
            producer.produce(topic, 0, numbered(30, prefix=codec), codec=codec)
            expected += values(numbered(30, prefix=codec))
    for reader in NAMES:
        read = clients.connect(reader, kafka.bootstrap).read(topic, 0, "earliest", len(expected))
        assert values(read) == expected, reader


def test_records_are_still_there_after_a_restart(clients: Clients, kafka: BrokerInThread) -> None:
    for name in NAMES:
        clients.connect(name, kafka.bootstrap).produce(f"restart-{name}", 0, numbered(20))
    clients.close_clients()
    kafka.restart()
    for name in NAMES:
        client: Client = clients.connect(name, kafka.bootstrap)
        assert values(client.read(f"restart-{name}", 0, "earliest", 20)) == values(numbered(20))
        assert client.produce(f"restart-{name}", 0, numbered(1)) == [20]


@pytest.mark.parametrize("name", NAMES_WITH_HEADERS)
def test_idempotent_producers_are_served(name: str, clients: Clients, kafka: BrokerInThread) -> None:
    client: Client = clients.connect(name, kafka.bootstrap)
    assert client.has_idempotence
    topic = f"idempotent-{name}"
    assert client.produce(topic, 0, numbered(300), idempotent=True) == list(range(300))
    assert values(client.read(topic, 0, "earliest", 300)) == values(numbered(300))
