"""Requests with very many elements are served in turns with all others, or refused; they never hold the event loop."""

from collections.abc import Iterator

import pytest

from moldau.broker.watchdog import Watchdog
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.requests.pieces import Pieces
from moldau.testing import BrokerInThread, broker
from tests.broker.raw import RawClient, request_frame

FETCH, LIST_OFFSETS, METADATA, HEARTBEAT, API_VERSIONS, DESCRIBE_CONFIGS = 1, 2, 3, 12, 18, 32
TOPIC, TOPIC_TYPE = "the-topic", 2


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    with broker() as kafka:
        with RawClient(kafka.bootstrap) as client:
            client.ask(METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse)
        yield kafka


@pytest.fixture
def client(running: BrokerInThread) -> Iterator[RawClient]:
    """Of a broker whose loop does not stand still because of what it is asked."""
    watchdog = running.watchdog
    assert isinstance(watchdog, Watchdog)
    before = len(watchdog.stalls)
    with RawClient(running.bootstrap) as connected:
        yield connected
    assert watchdog.stalls[before:] == []


def metadata(names: list[str]) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def test_a_hundred_thousand_names_of_topics_are_answered(client: RawClient) -> None:
    names = [f"topic-{number:06d}" for number in range(100_000)]
    answer = client.ask(METADATA, 9, metadata([*names, TOPIC]), MetadataResponse)
    assert [topic.name for topic in answer.topics] == [*names, TOPIC]
    assert {topic.error_code for topic in answer.topics[:-1]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.topics[-1].error_code == ErrorCode.NONE


def test_a_name_that_comes_again_and_again_is_answered_once(client: RawClient) -> None:
    answer = client.ask(METADATA, 9, metadata([TOPIC] * 100_000), MetadataResponse)
    assert [topic.name for topic in answer.topics] == [TOPIC]


def test_more_elements_than_a_frame_of_its_size_may_have_are_refused(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    body = codec.encode(metadata([""] * (codec.REQUEST_ELEMENTS_MIN + 1)), 9)
    client.send(request_frame(METADATA, 9, body))
    assert client.is_closed_by_the_broker()
    assert f"more than {codec.REQUEST_ELEMENTS_MIN} elements" in caplog.text


def test_masses_of_tagged_fields_are_refused(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    body = codec.encode(metadata([]), 9)[:-1] + b"\xff\xff\x0f" + b"\x01\x00" * 100_000
    client.send(request_frame(METADATA, 9, body))
    assert client.is_closed_by_the_broker()
    assert "tagged fields in one place" in caplog.text


def test_a_request_in_pieces_has_one_answer(client: RawClient) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(20_000)]
    topics = [ListOffsetsTopic(name=name, partitions=partitions) for name in (TOPIC, "other")]
    answer = client.ask(LIST_OFFSETS, 7, ListOffsetsRequest(topics=topics), ListOffsetsResponse)
    assert [topic.name for topic in answer.topics] == [TOPIC, "other"]
    told = [[each.partition_index for each in topic.partitions] for topic in answer.topics]
    assert told == [list(range(20_000))] * 2
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_fetch_of_fifty_thousand_partitions_is_answered(client: RawClient) -> None:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(50_000)]
    for max_wait_ms in (0, 1):
        request = FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=partitions)], max_wait_ms=max_wait_ms)
        answer = client.ask(FETCH, 11, request, FetchResponse)
        told = {each.partition_index: each.error_code for each in answer.responses[0].partitions}
        assert len(told) == 50_000
        assert told[0] == ErrorCode.NONE
        assert told[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_is_asked_again_and_again_is_told_once_where_the_answer_is_large(client: RawClient) -> None:
    resource = DescribeConfigsResource(resource_type=TOPIC_TYPE, resource_name=TOPIC, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource] * 40_000)
    answer = client.ask(DESCRIBE_CONFIGS, 4, request, DescribeConfigsResponse)
    assert [each.resource_name for each in answer.results] == [TOPIC]


def test_answers_keep_the_order_of_requests_behind_a_long_one(client: RawClient) -> None:
    long = codec.encode(metadata([f"{number:07d}" for number in range(20_000)]), 9)
    short = codec.encode(ApiVersionsRequest(), 0)
    client.send(request_frame(METADATA, 9, long, 1) + request_frame(API_VERSIONS, 0, short, 2))
    assert len(client.answer(METADATA, 9, MetadataResponse, 1).topics) == 20_000
    assert client.answer(API_VERSIONS, 0, ApiVersionsResponse, 2).api_keys


def test_twenty_thousand_requests_that_were_sent_ahead_are_answered_in_their_order(client: RawClient) -> None:
    """Each takes some microseconds, and their answers fit into the socket: nothing else makes the broker pause."""
    body = codec.encode(HeartbeatRequest(group_id="none", member_id="nobody"), 0)
    client.send(b"".join(request_frame(HEARTBEAT, 0, body, number) for number in range(20_000)))
    for number in range(20_000):
        assert client.answer(HEARTBEAT, 0, HeartbeatResponse, number).error_code != ErrorCode.NONE


def test_pieces_are_no_longer_than_they_may_be_and_lose_nothing() -> None:
    pieces = Pieces("topics", "topics", "partitions", "partitions", elements_max=10)
    partitions = [ListOffsetsPartition(partition_index=index) for index in range(25)]
    parts = (("a", partitions), ("b", partitions[:0]), ("c", partitions[:3]))
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=some) for name, some in parts])
    cut = list(pieces.cut(request))
    assert all(sum(1 + len(topic.partitions) for topic in piece.topics) <= 10 for piece in cut)
    told = [(topic.name, each.partition_index) for piece in cut for topic in piece.topics for each in topic.partitions]
    assert told == [("a", index) for index in range(25)] + [("c", index) for index in range(3)]
    assert "b" in [topic.name for piece in cut for topic in piece.topics]
