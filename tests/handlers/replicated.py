"""A broker without sockets that leads a topic with two followers, which the test plays."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.broker.dispatch import Dispatcher, Peer
from moldau.cluster.image import BrokerInfo, Endpoint
from moldau.core.files import FileRegion
from moldau.protocol import codec
from moldau.protocol.apis import response_type
from moldau.protocol.framing import response_prefix
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from moldau.protocol.messages.k19_create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.schema import Message
from moldau.records.batch import Record, build_batch
from moldau.replication.partition import Partition
from moldau.requests import registry
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from tests.handlers.conftest import World

FETCH_VERSION = 17
PRODUCE_VERSION = 13
TURNS = 5
"""Turns of the loop in which everything has happened that does not wait for time."""


class Replicated:
    """Broker 1 is real, 2 and 3 are the test's, 4 is registered and never fetches."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._epochs = {2: 1, 3: 1}
        self._sessions = {2: 0, 3: 0}
        self._frames = 0
        self.dispatcher = Dispatcher(world.services)
        self.peers = {2: Peer("PLAINTEXT"), 3: Peer("PLAINTEXT"), 9: Peer("PLAINTEXT")}
        for broker_id in (2, 3, 4):
            endpoints = (Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, "PLAINTEXT"),)
            world.run(world.metadata.register_broker(BrokerInfo(broker_id, None, endpoints)))

    def create(self, name: str, *replicas: int) -> bytes:
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignment)
        (result,) = self.world.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == 0, result.error_message
        topic_id: bytes = result.topic_id
        return topic_id

    def partition(self, name: str) -> Partition:
        return self.world.services.replicas.get(name, 0)

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        self.world.run(test())

    def batch(self, count: int = 1, sequence: int = -1) -> bytes:
        now_ms = self.world.clock.now_ms()
        records = [Record(each, now_ms, None, b"v%d" % each) for each in range(count)]
        producer_id, epoch = (7, 0) if sequence >= 0 else (-1, -1)
        return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    def produce_request(self, topic_id: bytes, records: bytes, timeout_ms: int = 30_000) -> ProduceRequest:
        data = [PartitionProduceData(index=0, records=records)]
        topic = TopicProduceData(topic_id=topic_id, partition_data=data)
        return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])

    def begin(self, request: Message, version: int) -> "asyncio.Future[Any]":
        """Send a request to its handler; the answer is to come."""
        received = codec.decode(type(request), version, codec.encode(request, version))
        context = RequestContext(self.world.services, version, "test", "PLAINTEXT", "127.0.0.1")
        given = registry.handler(request.api_key)(received, context)
        if isinstance(given, PendingAnswer):
            return asyncio.ensure_future(given)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(given)
        return future

    def replica_request(
        self,
        replica_id: int,
        *topics: FetchTopic,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        broker_epoch: int | None = None,
        forgotten: list[ForgottenTopic] | None = None,
    ) -> FetchRequest:
        """The next request of a follower's session; without topics it names nothing new."""
        epoch = self.world.image.brokers[replica_id].epoch if broker_epoch is None else broker_epoch
        is_first = self._sessions[replica_id] == 0
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replica_id, replica_epoch=epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._sessions[replica_id],
            session_epoch=0 if is_first else self._epochs[replica_id],
            topics=list(topics),
            forgotten_topics_data=forgotten or [],
        )
        self._epochs[replica_id] = 1 if is_first else self._epochs[replica_id] + 1
        return request

    async def replica_fetch(self, replica_id: int, *topics: FetchTopic, **more: Any) -> FetchResponse:
        response: FetchResponse = await self.begin(self.replica_request(replica_id, *topics, **more), FETCH_VERSION)
        self._sessions[replica_id] = response.session_id
        return response

    def send(self, peer: int, request: Message, version: int) -> "asyncio.Future[bytes]":
        """Send a request as the bytes that it is; the whole answer as bytes, to come."""
        self._frames += 1
        header = request.api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + self._frames.to_bytes(4, "big")
        frame = header + b"\0\4test\0" + codec.encode(request, version)
        answer = self.dispatcher.dispatch(memoryview(frame), self.peers[peer])
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if isinstance(answer, PendingAnswer):
            answer.when_done(lambda later: future.set_result(joined(later.chunks)))
        else:
            future.set_result(joined(answer))
        return future

    def received(self, replica_id: int, api_key: int, version: int, answer: bytes) -> Any:
        """The message in an answer; a follower notes its session."""
        position = 4 + response_prefix(api_key, version).size
        message = codec.decode(response_type(api_key), version, answer, position)
        if isinstance(message, FetchResponse) and replica_id in self._sessions:
            self._sessions[replica_id] = message.session_id
        return message


def joined(chunks: Any) -> bytes:
    pieces = [chunks] if isinstance(chunks, bytes) else chunks
    return b"".join(each.read() if isinstance(each, FileRegion) else each for each in pieces)


def at(topic_id: bytes, offset: int, *, epoch: int = 0, last_epoch: int = -1, max_bytes: int = 1 << 20) -> FetchTopic:
    """Partition 0 of a topic as a follower names it."""
    position = FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=max_bytes,
    )
    return FetchTopic(topic_id=topic_id, partitions=[position])


def only(response: FetchResponse) -> PartitionData:
    ((result,),) = [topic.partitions for topic in response.responses]
    return result


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
