"""Ten thousand clients that are connected and idle cost little, and nobody else notices them."""

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.raw import request_frame
from tests.serving import serving

pytestmark = pytest.mark.alone

CONNECTIONS = 10_000
RESIDENT_MB_MAX = 300
API_VERSIONS = 18


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    """Each connection is one descriptor here and one in the broker."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < CONNECTIONS + 1000:
        pytest.fail(f"the hard limit of open files is {before[1]}: raise it (ulimit -Hn) above {CONNECTIONS + 1000}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_ten_thousand_idle_connections_are_held(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        idle = [greeted(server.port) for _ in range(CONNECTIONS)]
        try:
            assert produce_and_read(server.bootstrap, 1000) == [str(number).encode() for number in range(1000)]
            assert server.resident_mb() < RESIDENT_MB_MAX
            assert still_answers(idle[0])
            assert still_answers(idle[-1])
        finally:
            for each in idle:
                each.close()


def greeted(port: int) -> socket.socket:
    """A connection that has introduced itself, as every client does."""
    connection = socket.create_connection(("127.0.0.1", port), 30)
    assert still_answers(connection)
    return connection


def still_answers(connection: socket.socket) -> bool:
    connection.sendall(request_frame(API_VERSIONS, 0, b""))
    return len(connection.recv(65536)) > 4


def produce_and_read(bootstrap: str, count: int) -> list[bytes | None]:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("busy", str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("busy", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < count:
        messages = consumer.consume(count, 30)
        assert messages
        values += [message.value() for message in messages]
    consumer.close()
    return values
