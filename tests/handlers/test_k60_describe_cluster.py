"""DescribeCluster. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from tests.handlers.conftest import World

NOT_ASKED = -(2**31)
ALL_OPERATIONS = 8096


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_told_at_the_addresses_of_the_clients_listener(world: World, version: int) -> None:
    answer = world.ask(DescribeClusterRequest(), version, listener="OUT")
    assert (answer.error_code, answer.controller_id) == (0, 1)
    assert answer.cluster_id == world.image.cluster_id
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "outside", 443, "r1")
    assert answer.cluster_authorized_operations == NOT_ASKED


def test_operations_are_told_on_request(world: World) -> None:
    answer = world.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert answer.cluster_authorized_operations == ALL_OPERATIONS


def test_a_fenced_broker_is_never_there(world: World) -> None:
    (broker,) = world.ask(DescribeClusterRequest(include_fenced_brokers=True)).brokers
    assert not broker.is_fenced


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_only_brokers_can_be_asked_for(world: World, endpoint_type: int, code: ErrorCode) -> None:
    answer = world.ask(DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message
