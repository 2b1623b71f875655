"""Every version of every served API key gets an answer that reads back, empty request or not."""

from collections.abc import Iterator

import pytest

from moldau.protocol import codec
from moldau.protocol.apis import find, request_type, response_type
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest
from moldau.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from moldau.records.legacy import build_message_set
from moldau.requests import registry
from moldau.testing import BrokerInThread, broker
from tests.broker.raw import RawClient, request_frame

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, LEADER_EPOCH = 0, 1, 2, 3, 18, 23
TOPIC = "t"


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    with broker() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topic_id(running: BrokerInThread) -> bytes:
    """Of the topic that every request names."""
    response = ask(running.bootstrap, METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    found: bytes = response.topics[0].topic_id  # type: ignore[attr-defined]  # it is a MetadataResponse
    return found


def ask(bootstrap: str, key: int, version: int, request: Message) -> Message:
    with RawClient(bootstrap) as client:
        client.send(request_frame(key, version, codec.encode(request, version)))
        return client.answer(key, version, response_type(key))


def versions(*keys: int) -> list[tuple[int, int]]:
    found = [find(key) for key in keys]
    return [(api.key, version) for api in found if api for version in range(api.min_version, api.max_version + 1)]


def named(pair: tuple[int, int]) -> str:
    api = find(pair[0])
    return f"{api.name if api else pair[0]}-{pair[1]}"


@pytest.mark.parametrize("pair", versions(*registry.modules()), ids=named)
def test_an_empty_request_is_answered(running: BrokerInThread, pair: tuple[int, int]) -> None:
    key, version = pair
    request = request_type(key)()
    if key == API_VERSIONS:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    if key == PRODUCE:
        request = ProduceRequest(acks=1)
    assert ask(running.bootstrap, key, version, request) is not None


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_produce_is_stored_and_every_version_of_fetch_reads_it(
    running: BrokerInThread, topic_id: bytes, version: int
) -> None:
    record = Record(0, 1_700_000_000_000, b"key", str(version).encode())
    data = build_batch([record]) if version >= 3 else build_message_set([record], magic=0 if version < 2 else 1)
    partition = PartitionProduceData(index=0, records=data)
    topic = TopicProduceData(topic_id=topic_id) if version >= 13 else TopicProduceData(name=TOPIC)
    topic = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[partition])
    produced = ask(running.bootstrap, PRODUCE, version, ProduceRequest(acks=-1, topic_data=[topic]))
    result = produced.responses[0].partition_responses[0]  # type: ignore[attr-defined]  # a ProduceResponse
    assert result.error_code == 0
    for fetch_version in range(19):
        assert str(version).encode() in fetch(running.bootstrap, fetch_version, topic_id, result.base_offset)


def fetch(bootstrap: str, version: int, topic_id: bytes, offset: int) -> bytes:
    """The bytes of the records from an offset."""
    by_id = version >= 13
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="" if by_id else TOPIC, topic_id=topic_id if by_id else bytes(16), partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
    answer = ask(bootstrap, FETCH, version, request)
    found = answer.responses[0].partitions[0]  # type: ignore[attr-defined]  # a FetchResponse
    assert found.error_code == 0
    return bytes(found.records)


@pytest.mark.parametrize("timestamp", [-1, -2, 1])
@pytest.mark.parametrize("pair", versions(LIST_OFFSETS), ids=named)
def test_every_version_of_list_offsets_finds_the_topic(
    running: BrokerInThread, topic_id: bytes, pair: tuple[int, int], timestamp: int
) -> None:
    assert topic_id
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    answer = ask(running.bootstrap, LIST_OFFSETS, pair[1], request)
    assert answer.topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]  # a ListOffsetsResponse


@pytest.mark.parametrize("pair", versions(LEADER_EPOCH), ids=named)
def test_every_version_of_offset_for_leader_epoch_finds_the_topic(
    running: BrokerInThread, topic_id: bytes, pair: tuple[int, int]
) -> None:
    assert topic_id
    asked = OffsetForLeaderTopic(topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    request = OffsetForLeaderEpochRequest(replica_id=-2, topics=[asked])
    answer = ask(running.bootstrap, LEADER_EPOCH, pair[1], request)
    found = answer.topics[0].partitions[0]  # type: ignore[attr-defined]  # an OffsetForLeaderEpochResponse
    assert found.error_code == 0
    assert found.end_offset >= 0


@pytest.mark.parametrize("pair", versions(METADATA), ids=named)
def test_every_version_of_metadata_tells_known_and_unknown_topics(
    running: BrokerInThread, topic_id: bytes, pair: tuple[int, int]
) -> None:
    assert topic_id
    allowed = pair[1] < 4
    asked = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="bad name!")]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=allowed)
    answer = ask(running.bootstrap, METADATA, pair[1], request)
    assert [topic.error_code for topic in answer.topics] == [0, 17]  # type: ignore[attr-defined]  # a MetadataResponse
