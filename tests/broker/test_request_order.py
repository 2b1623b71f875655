"""Requests of one connection are decided in the order in which they were sent, however many come in one read."""

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from moldau.broker.connection import Connection
from moldau.broker.dispatch import Dispatcher
from moldau.broker.group_coordinator import GroupCoordinator
from moldau.broker.receive_buffers import ReceiveBuffers
from moldau.protocol import codec
from moldau.protocol.apis import response_type
from moldau.protocol.errors import ErrorCode
from moldau.protocol.framing import response_prefix
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest
from moldau.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.k47_offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from tests.broker.raw import request_frame
from tests.broker.transports import Owner, Transport
from tests.handlers.conftest import World

TURNS_MAX = 1000
GROUP = "g"


class Client:
    """One connection to a broker without sockets."""

    def __init__(self, world: World, cold_reads: ThreadPoolExecutor) -> None:
        self.world, self._cold_reads, self._inputs = world, cold_reads, ReceiveBuffers()
        self._dispatcher = Dispatcher(world.services)
        self.connect()

    def connect(self) -> None:
        """Anew."""
        self._transport, loop = Transport(), self.world.runner.get_loop()
        made = Connection(loop, Owner(), self._dispatcher, self._cold_reads, self._inputs, "PLAINTEXT", 1 << 20)
        made.connection_made(cast(asyncio.Transport, self._transport))
        self._connection = made

    def send(self, request: Message, version: int) -> None:
        self._arrived(request_frame(request.api_key, version, codec.encode(request, version)))

    def _arrived(self, data: bytes) -> None:
        self._connection.get_buffer(-1)[: len(data)] = data
        self._connection.buffer_updated(len(data))

    def ask_all(self, *asked: tuple[Message, int]) -> list[Any]:
        """Send requests, each in its version, in one piece; their answers."""
        data = b"".join(
            request_frame(each.api_key, version, codec.encode(each, version), number)
            for number, (each, version) in enumerate(asked)
        )

        async def exchange() -> list[bytes]:
            self._transport.writes.clear()
            self._arrived(data)
            for _ in range(TURNS_MAX):
                frames = _frames(b"".join(self._transport.writes))
                if len(frames) == len(asked):
                    return frames
                await asyncio.sleep(0.001)
            raise TimeoutError(f"{len(frames)} of {len(asked)} requests are answered")

        frames = self.world.run(exchange())
        return [_decoded(frame, each, version) for frame, (each, version) in zip(frames, asked, strict=True)]


def _frames(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def _decoded(frame: bytes, request: Message, version: int) -> Any:
    key = request.api_key
    return codec.decode(response_type(key), version, frame, response_prefix(key, version).size)


@pytest.fixture
def client() -> Iterator[Client]:
    world = World({"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"})
    with ThreadPoolExecutor(1) as cold_reads:
        yield Client(world, cold_reads)
    world.close()


def _join(member_id: str = "") -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def _commit(generation: int = -1, member_id: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


GROUP_REQUESTS: list[tuple[Message, int]] = [
    (_commit(), 0),
    (_commit(), 9),
    (OffsetFetchRequest(group_id=GROUP, topics=[]), 0),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 9),
    (_join(), 1),
    (_join(), 9),
    (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4),
    (LeaveGroupRequest(group_id=GROUP, member_id="m"), 0),
    (LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")]), 5),
    (SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m"), 3),
    (DescribeGroupsRequest(groups=[GROUP]), 5),
    (DeleteGroupsRequest(groups_names=[GROUP]), 2),
    (OffsetDeleteRequest(group_id=GROUP, topics=[]), 0),
    (ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=1), 0),
    (ConsumerGroupDescribeRequest(group_ids=[GROUP]), 0),
]


def test_every_pair_of_group_requests_in_one_read_is_decided_in_its_order(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.world.create("t")
    client.ask_all((FindCoordinatorRequest(key=GROUP), 1))  # makes the topic of the offsets
    decided: list[object] = []
    for name in ("answer", "read"):
        original = getattr(GroupCoordinator, name)

        def noted(*given: Any, _original: Any = original) -> Any:
            decided.append(None)
            return _original(*given)

        monkeypatch.setattr(GroupCoordinator, name, noted)

    async def send(*pair: tuple[Message, int]) -> None:
        for number, (request, version) in enumerate(pair, 1):
            client.send(request, version)
            assert len(decided) == number, f"{request} is not decided when its handler has returned"

    for first, second in itertools.product(GROUP_REQUESTS, GROUP_REQUESTS):
        decided.clear()
        client.connect()
        client.world.run(send(first, second))


def test_a_commit_before_a_join_is_of_the_generation_before(client: Client) -> None:
    client.world.create("t")
    client.ask_all((FindCoordinatorRequest(key=GROUP), 1))
    (refused,) = client.ask_all((_join(), 5))
    (joined,) = client.ask_all((_join(refused.member_id), 5))
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    member_id = joined.member_id
    synced, *_ = client.ask_all((SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=member_id), 3))
    assert synced.error_code == ErrorCode.NONE
    committed, rejoined = client.ask_all((_commit(1, member_id), 7), (_join(member_id), 5))
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert rejoined.generation_id == 2


def test_what_follows_the_creation_of_a_topic_finds_it(client: Client) -> None:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    data = [PartitionProduceData(index=0, records=batch)]
    created, described, produced, deleted, gone = client.ask_all(
        (CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]), 4),
        (MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 8),
        (ProduceRequest(acks=1, topic_data=[TopicProduceData(name="new", partition_data=data)]), 8),
        (DeleteTopicsRequest(topic_names=["new"]), 3),
        (MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 8),
    )
    assert created.topics[0].error_code == ErrorCode.NONE
    assert described.topics[0].error_code == ErrorCode.NONE
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert gone.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
