"""The tools' own wire client."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.cli.failures import ToolError
from moldau.cli.wire import Address, WireCluster, WireConnection
from moldau.protocol.messages.k52_vote import VoteRequest, VoteResponse
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.testing.brokers import BrokerInThread
from moldau.testing.ports import free_ports
from tests.cli.conftest import Tool


@contextmanager
def answering(data: bytes) -> Iterator[str]:
    """Something that takes one connection after the other, sends `data` and hangs up; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(1024):
                        connection.sendall(data)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    serving.join()


def test_a_cluster_is_found_through_any_of_the_brokers_that_are_named(moldau_broker: BrokerInThread) -> None:
    (dead,) = free_ports(1)
    with WireCluster(f"127.0.0.1:{dead},{moldau_broker.bootstrap}") as cluster:
        (broker_id,) = cluster.brokers()
        answer = cluster.broker(broker_id).request(DescribeClusterRequest(), DescribeClusterResponse)
        assert [each.broker_id for each in answer.brokers] == [broker_id]
        with pytest.raises(ToolError, match=f"there is no broker 77 that is alive: the brokers are {broker_id}"):
            cluster.broker(77)


def test_a_request_that_the_broker_does_not_know_is_not_sent(moldau_broker: BrokerInThread) -> None:
    with WireCluster(moldau_broker.bootstrap) as cluster:
        assert not cluster.any().serves(VoteRequest.api_key)
        with pytest.raises(ToolError, match="does not serve Vote"):
            cluster.any().request(VoteRequest(), VoteResponse)


def test_nobody_at_the_address_is_said_in_words() -> None:
    (dead,) = free_ports(1)
    with pytest.raises(ToolError, match=r"no broker answers at .*: start one with `moldau serve`"):
        WireCluster(f"127.0.0.1:{dead}")
    with pytest.raises(ToolError, match="does not answer"):
        WireConnection(Address("127.0.0.1", dead))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is it a Kafka broker"),
        (b"\0\0\0\x08\0\0\0\x01\0\0\x7f\xff", "cannot be read"),
        (b"\0\0\0\x09\0\0\0\x01", "does not answer"),
    ],
)
def test_what_is_no_broker_is_said_in_words(data: bytes, reason: str) -> None:
    with answering(data) as address, pytest.raises(ToolError, match=reason):
        WireCluster(address).any()


def test_a_secure_listener_is_refused_with_a_way_out(tool: Tool, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=QUIC\n")
    for arguments in (("list", "--command-config", str(settings)), ("--command-config", str(settings), "list")):
        assert "security.protocol QUIC is not spoken here" in tool.error("transactions", *arguments)


def test_an_action_is_needed(tool: Tool, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit):
        tool("transactions")
    assert b"ACTION" in capsysbinary.readouterr().err
