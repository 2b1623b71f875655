"""What one connection may expect: answers in order, bounded memory, Kafka's limits."""

import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker import sender
from moldau.broker.listeners import Listeners
from moldau.broker.receive_buffers import KEPT_MAX
from moldau.core.broker_config import BrokerConfig
from moldau.core.files import FileRegion
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.records.batch import Record, build_batch, iter_records, split_batches
from moldau.testing import broker
from tests.broker.raw import RawClient, request_frame
from tests.serving import serving

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 10, 11, 14, 15
VERSION = 11  # the last Fetch that names topics
FOREVER_MS = 3_600_000
TOPIC = "t"


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with broker({"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}) as kafka:
        with RawClient(kafka.bootstrap) as client:
            create_topic(client)
        yield kafka.bootstrap


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as connected:
        yield connected


def create_topic(client: RawClient) -> None:
    client.ask(METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), MetadataResponse)


def produce_request(value: bytes, partition: int = 0, count: int = 1) -> ProduceRequest:
    records = [Record(number, 1_700_000_000_000, None, value) for number in range(count)]
    data = PartitionProduceData(index=partition, records=build_batch(records))
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])])


def produce_frame(value: bytes, partition: int, correlation_id: int) -> bytes:
    return request_frame(PRODUCE, 9, codec.encode(produce_request(value, partition), 9), correlation_id)


def produce(client: RawClient, value: bytes, partition: int = 0, count: int = 1) -> None:
    answer = client.ask(PRODUCE, 9, produce_request(value, partition, count), ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def wanted(offset: int, partition: int = 0, max_bytes: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)


def fetch_request(*partitions: FetchPartition, wait_ms: int = 0, max_bytes: int = 50 << 20) -> FetchRequest:
    topics = [FetchTopic(topic=TOPIC, partitions=list(partitions))]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=topics)


def fetch(client: RawClient, request: FetchRequest) -> list[PartitionData]:
    answer = client.ask(FETCH, VERSION, request, FetchResponse)
    assert answer.error_code == 0
    return [partition for topic in answer.responses for partition in topic.partitions]


def values(partition: PartitionData) -> list[bytes | None]:
    return [record.value for _, batch in split_batches(bytes_of(partition)) for record in iter_records(batch)]


def bytes_of(partition: PartitionData) -> bytes:
    records = partition.records
    assert not isinstance(records, FileRegion)
    return bytes(records or b"")


def test_pipelined_requests_are_answered_in_their_order(client: RawClient) -> None:
    produce(client, b"there")
    waiting = codec.encode(fetch_request(wanted(0)), VERSION)
    frames = [
        request_frame(FETCH, VERSION, waiting, number) if number % 3 else request_frame(API_VERSIONS, 0, b"", number)
        for number in range(200)
    ]
    client.send(b"".join(frames))
    for number in range(200):
        frame = client.receive()
        assert frame is not None
        assert struct.unpack_from(">i", frame) == (number,)


@pytest.mark.parametrize("value_bytes", [10, 5_000, 40_000, 300_000])
def test_requests_that_come_in_one_piece_or_many_are_all_appended(bootstrap: str, value_bytes: int) -> None:
    """All connections read into the same memory."""
    sent = [[bytes([number]) * value_bytes for number in range(first, 24, 2)] for first in (0, 1)]
    with RawClient(bootstrap) as one, RawClient(bootstrap) as other:
        for partition, client in enumerate((one, other)):
            client.send(
                b"".join(produce_frame(value, partition, number) for number, value in enumerate(sent[partition]))
            )
        for client in (one, other):
            for number in range(12):
                (result,) = client.answer(PRODUCE, 9, ProduceResponse, number).responses[0].partition_responses
                assert (result.error_code, result.base_offset) == (0, number)
        for partition, values_sent in enumerate(sent):
            got = fetch(one, fetch_request(wanted(0, partition, 10 << 20)))
            assert values(got[0]) == values_sent


def test_many_clients_may_be_in_the_middle_of_a_large_request(bootstrap: str) -> None:
    """Some of them find no memory to keep theirs in, and all go on where they were."""
    clients = [RawClient(bootstrap) for _ in range(KEPT_MAX + 6)]
    sent = [number.to_bytes(2, "big") * 20_000 for number in range(len(clients))]
    frames = [produce_frame(value, 0, number) for number, value in enumerate(sent)]
    for part in (slice(17_000), slice(17_000, 17_001), slice(17_001, None)):
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame[part])
        with RawClient(bootstrap) as other:
            produce(other, b"x" * 50_000, partition=1)
    for number, client in enumerate(clients):
        (result,) = client.answer(PRODUCE, 9, ProduceResponse, number).responses[0].partition_responses
        assert result.error_code == 0
        client.socket.close()
    with RawClient(bootstrap) as reader:
        got = fetch(reader, fetch_request(wanted(0, 0, 10 << 20)))
    assert sorted(value or b"" for value in values(got[0])) == sent


def test_what_a_large_request_leaves_behind_is_not_overwritten_by_the_next(client: RawClient) -> None:
    metadata, assignment = b"m" * 10_000, b"a" * 20_000
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    client.ask(FIND_COORDINATOR, 0, FindCoordinatorRequest(key="g"), FindCoordinatorResponse)
    joined = client.ask(JOIN_GROUP, 0, join, JoinGroupResponse)
    while joined.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        joined = client.ask(JOIN_GROUP, 0, join, JoinGroupResponse)
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )
    assert client.ask(SYNC_GROUP, 0, sync, SyncGroupResponse).error_code == 0
    for _ in range(3):
        produce(client, b"x" * 60_000)
    described = client.ask(DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse)
    (member,) = described.groups[0].members
    assert (member.member_metadata, member.member_assignment) == (metadata, assignment)


def test_a_fetch_that_waits_holds_back_later_answers_but_not_their_work(bootstrap: str, client: RawClient) -> None:
    body = codec.encode(fetch_request(wanted(0), wait_ms=FOREVER_MS), VERSION)
    client.send(request_frame(FETCH, VERSION, body, 1) + request_frame(API_VERSIONS, 0, b"", 2))
    with RawClient(bootstrap) as other:
        produce(other, b"now")
    (got,) = client.answer(FETCH, VERSION, FetchResponse, 1).responses[0].partitions
    assert values(got) == [b"now"]
    assert client.answer(API_VERSIONS, 0, ApiVersionsResponse, 2).error_code == 0


def test_a_fetch_without_data_is_answered_when_its_time_is_up(client: RawClient) -> None:
    (empty,) = fetch(client, fetch_request(wanted(0), wait_ms=20))
    assert (empty.error_code, empty.high_watermark, bytes_of(empty)) == (0, 0, b"")


def test_the_first_batch_comes_even_if_it_is_larger_than_every_limit(client: RawClient) -> None:
    produce(client, bytes(5000))
    produce(client, bytes(5000), partition=1)
    first, second = fetch(client, fetch_request(wanted(0, 0, 10), wanted(0, 1, 10), max_bytes=10))
    assert values(first) == [bytes(5000)]
    assert bytes_of(second) == b""


def test_an_answer_keeps_to_max_bytes(client: RawClient) -> None:
    for number in range(20):
        produce(client, bytes([number]) * 1000)
        produce(client, bytes([number]) * 1000, partition=1)
    both = fetch(client, fetch_request(wanted(0, 0), wanted(0, 1, 3000), max_bytes=10_000))
    assert len(values(both[0])) == 9
    assert sum(len(bytes_of(partition)) for partition in both) <= 10_000


def test_an_offset_out_of_range_is_told_at_once(client: RawClient) -> None:
    (outside,) = fetch(client, fetch_request(wanted(7), wait_ms=FOREVER_MS))
    assert (outside.error_code, outside.high_watermark) == (1, -1)


def test_a_session_tells_only_news(client: RawClient) -> None:
    opening = fetch_request(wanted(0, 0), wanted(0, 1))
    opening = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=0, topics=opening.topics
    )
    opened = client.ask(FETCH, VERSION, opening, FetchResponse)
    assert opened.session_id != 0
    assert [each.partition_index for each in opened.responses[0].partitions] == [0, 1]

    def go_on(epoch: int) -> FetchResponse:
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch)
        return client.ask(FETCH, VERSION, request, FetchResponse)

    assert go_on(1).responses == []
    produce(client, b"news", partition=1)
    (told,) = go_on(2).responses[0].partitions
    assert (told.partition_index, values(told)) == (1, [b"news"])
    assert go_on(2).error_code == 71
    assert go_on(3).error_code == 0


def test_an_unknown_session_is_refused(client: RawClient) -> None:
    request = FetchRequest(session_id=4711, session_epoch=1)
    assert client.ask(FETCH, VERSION, request, FetchResponse).error_code == 70


@pytest.mark.parametrize("size", [100, 50_000, 900_000])
def test_records_that_are_not_in_the_page_cache_are_read_by_a_thread(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    produce(client, bytes(size))
    cold = iter([None])
    read_if_cached = sender.read_if_cached
    monkeypatch.setattr(sender, "read_if_cached", lambda region: next(cold, read_if_cached(region)))
    monkeypatch.setattr(sender, "is_cached", lambda _: next(cold, True) is not None)
    (got,) = fetch(client, fetch_request(wanted(0)))
    assert values(got) == [bytes(size)]
    assert next(cold, "used") == "used"


def test_a_client_that_does_not_read_costs_no_memory(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, RawClient(server.bootstrap) as writer:
        create_topic(writer)
        for _ in range(60):
            produce(writer, bytes(1_000_000))
        small, large = wanted(0, 0, 100_000), wanted(0, 0, 50 << 20)
        before_mb = server.resident_mb()
        lazy = [RawClient(server.bootstrap) for _ in range(20)]
        for number, each in enumerate(lazy):
            body = codec.encode(fetch_request(small if number % 2 else large), VERSION)
            each.send(request_frame(FETCH, VERSION, body) * 1000)
        produce(writer, b"others go on")
        assert server.resident_mb() - before_mb < 40
        for each in lazy:
            each.socket.close()


def test_an_idle_connection_is_closed() -> None:
    with broker({"connections.max.idle.ms": "500"}) as kafka, RawClient(kafka.bootstrap) as idle:
        idle.ask(API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        assert idle.is_closed_by_the_broker()


def test_a_connection_that_waits_for_data_is_not_idle() -> None:
    with broker({"connections.max.idle.ms": "500"}) as kafka:
        with RawClient(kafka.bootstrap) as other:
            create_topic(other)
        with RawClient(kafka.bootstrap) as waiting:
            for _ in range(2):  # the second is asked just after a wait
                (empty,) = fetch(waiting, fetch_request(wanted(0), wait_ms=1200))
                assert empty.error_code == 0


def test_who_was_answered_late_has_its_whole_time_to_ask_again() -> None:
    closed: list[float] = []
    loop = SimpleNamespace(now=0.0)
    loop.time = lambda: loop.now
    waiting = SimpleNamespace(last_active=0.0, busy=True, close=lambda: closed.append(loop.now))
    config, _ = BrokerConfig.parse({"connections.max.idle.ms": "1000"})
    listeners = Listeners(cast(Any, loop), lambda: config, cast(Any, None))
    listeners._connections = cast(Any, [waiting])
    for loop.now, waiting.busy in ((5.0, True), (5.5, False), (6.0, False), (6.5, False)):
        listeners.close_idle()
    assert closed == [6.5]


@pytest.mark.parametrize(
    "limit",
    [{"max.connections": "2"}, {"max.connections.per.ip": "2"}, {"max.connections.per.ip.overrides": "127.0.0.1:2"}],
)
def test_one_connection_too_many_is_refused_until_another_goes(limit: dict[str, str]) -> None:
    with broker(limit) as kafka:
        first, second, third = (RawClient(kafka.bootstrap) for _ in range(3))
        first.ask(API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        second.ask(API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        assert third.is_closed_by_the_broker()
        for each in (first, second, third):
            each.socket.close()
