"""Answers that wait for the same sync of one log leave together, in the order of their requests."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from moldau.broker.connection import Connection
from moldau.broker.receive_buffers import ReceiveBuffers
from moldau.core.files import Buffer
from moldau.fastpath.produce import HELD_MAX
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import ProduceResponse
from moldau.protocol.messages.k03_metadata import MetadataRequest
from moldau.protocol.schema import Message
from moldau.replication.durability import Durability
from tests.broker.transports import Owner, Transport
from tests.committers import ManualDisk
from tests.handlers.conftest import World
from tests.handlers.replicated import PRODUCE_VERSION, Replicated, turns

METADATA_VERSION = 12
LEARNING = 2
"""Requests that are served before the first one of a test; that one is the next, and its offset is this."""
FIRST_ID = LEARNING + 1
HEADER_BYTES = 9  # of an answer: size, correlation id, no tags


class Synced(Replicated):
    """Broker 1, whose disk syncs when the test says so, and one connection."""

    def __init__(self, world: World) -> None:
        self.disk = ManualDisk()
        world.replace(durability=Durability("group", self.disk))
        super().__init__(world)
        self.topic_id = self.create("t", 1)
        self.transport = Transport()
        self._correlation_id = 0

    def connect(self, loop: asyncio.AbstractEventLoop, cold_reads: ThreadPoolExecutor) -> None:
        inputs = ReceiveBuffers()
        self._connection = Connection(loop, Owner(), self.dispatcher, cold_reads, inputs, "PLAINTEXT", 1 << 20)
        self._connection.connection_made(cast(asyncio.Transport, self.transport))

    def read(self, *requests: Message) -> None:
        """All of them in one piece, as a client sends them that waits for no answer."""
        data = b"".join(map(self._frame, requests))
        self._connection.get_buffer(-1)[: len(data)] = data
        self._connection.buffer_updated(len(data))

    def _frame(self, request: Message) -> Buffer:
        self._correlation_id += 1
        version = METADATA_VERSION if isinstance(request, MetadataRequest) else PRODUCE_VERSION
        key = request.api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
        header = key + self._correlation_id.to_bytes(4, "big") + b"\0\4test\0"
        body = codec.encode(request, version)
        return (len(header) + len(body)).to_bytes(4, "big") + header + body

    def produce(self) -> Message:
        return self.produce_request(self.topic_id, self.batch())

    async def learn(self) -> None:
        """Have the request learnt, and room for plain batches found in the segment."""
        for _ in range(LEARNING):
            self.read(self.produce())
            await self.disk.finish()
            await turns()
        self.answers()

    def answers(self) -> list[tuple[int, bytes]]:
        """Correlation id and body of each answer that was written since, in this order."""
        data, found = b"".join(self.transport.writes), []
        self.transport.writes.clear()
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            found.append((int.from_bytes(data[4:8], "big"), data[HEADER_BYTES:end]))
            data = data[end:]
        return found

    def results(self) -> list[tuple[int, int, int]]:
        """Correlation id, error and offset of the answers to produce requests."""
        found = []
        for correlation_id, body in self.answers():
            response = codec.decode(ProduceResponse, PRODUCE_VERSION, body)
            (result,) = response.responses[0].partition_responses
            found.append((correlation_id, result.error_code, result.base_offset))
        return found


@pytest.fixture
def run(world: World) -> Callable[[Callable[[Synced], Awaitable[None]]], None]:
    """Runs a test whose requests take the fast path from the first one on."""

    def run(test: Callable[[Synced], Awaitable[None]]) -> None:
        cluster = Synced(world)

        async def connected() -> None:
            with ThreadPoolExecutor(1) as cold_reads:
                cluster.connect(asyncio.get_running_loop(), cold_reads)
                await cluster.learn()
                await test(cluster)

        cluster.run(connected)

    return run


Run = Callable[[Callable[[Synced], Awaitable[None]]], None]


def test_requests_that_were_sent_together_wait_as_one_and_are_answered_in_one_write(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(*(cluster.produce() for _ in range(5)))
        assert len(cluster.disk.syncs) == 1
        assert cluster.transport.writes == []
        await cluster.disk.finish()
        assert len(cluster.transport.writes) == 1
        assert cluster.results() == [(FIRST_ID + each, ErrorCode.NONE, LEARNING + each) for each in range(5)]

    run(test)


def test_one_that_comes_later_joins_a_sync_that_has_not_begun(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(cluster.produce())
        cluster.read(cluster.produce())
        assert len(cluster.disk.syncs) == 1
        await cluster.disk.finish()
        assert [offset for _, _, offset in cluster.results()] == [LEARNING, LEARNING + 1]

    run(test)


def test_none_joins_a_sync_that_has_begun(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(cluster.produce())
        cluster.disk.has_begun = True
        cluster.read(cluster.produce())
        assert len(cluster.disk.syncs) == 2
        await cluster.disk.finish()
        assert [offset for _, _, offset in cluster.results()] == [LEARNING]
        await cluster.disk.finish()
        assert [offset for _, _, offset in cluster.results()] == [LEARNING + 1]

    run(test)


def test_no_answer_overtakes_that_of_another_request_between_them(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(cluster.produce(), MetadataRequest(topics=[]), cluster.produce(), cluster.produce())
        assert len(cluster.disk.syncs) == 2
        await cluster.disk.finish()
        assert [correlation_id for correlation_id, _ in cluster.answers()] == [FIRST_ID, FIRST_ID + 1]
        await cluster.disk.finish()
        assert [correlation_id for correlation_id, _ in cluster.answers()] == [FIRST_ID + 2, FIRST_ID + 3]

    run(test)


def test_each_is_told_when_their_sync_fails(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(*(cluster.produce() for _ in range(3)))
        await cluster.disk.finish(frozenset({cluster.partition("t").log}))
        told = [(correlation_id, error) for correlation_id, error, _ in cluster.results()]
        assert told == [(FIRST_ID + each, ErrorCode.KAFKA_STORAGE_ERROR) for each in range(3)]

    run(test)


def test_what_waits_as_one_is_bounded(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(*(cluster.produce() for _ in range(2 * HELD_MAX)))
        assert len(cluster.disk.syncs) == 2
        await cluster.disk.finish()
        assert len(cluster.results()) == HELD_MAX
        await cluster.disk.finish()
        assert len(cluster.results()) == HELD_MAX

    run(test)


def test_a_connection_that_rests_keeps_no_log_alive(run: Run) -> None:
    async def test(cluster: Synced) -> None:
        cluster.read(cluster.produce())
        last = cluster._connection.peer.last_answer.pending
        assert last is not None
        assert last._requests  # type: ignore[attr-defined]
        await cluster.disk.finish()
        assert not last._requests  # type: ignore[attr-defined]

    run(test)
