"""Two brokers that are sent the same: one knows requests again and takes its fast paths, the other one never does.

Whatever the course of things, both answer the same bytes, or both wait, and both have the same logs afterwards.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from moldau.broker.dispatch import Answer, Dispatcher, Introduction, Peer
from moldau.cluster.image import BrokerInfo, Endpoint
from moldau.core.files import FileRegion
from moldau.log.log import Log
from moldau.log.snapshots import render_snapshot
from moldau.protocol import codec
from moldau.protocol.apis import response_type
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import Frame
from moldau.protocol.messages.k19_create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from moldau.protocol.schema import Message
from moldau.replication.partition import Partition
from moldau.requests.context import Services
from moldau.requests.pending import PendingAnswer
from moldau.testing.virtual_loop import virtual_loop
from tests.handlers.conftest import BROKER_ID, World
from tests.handlers.transacting import Coordinator

TOPIC = "t"
CLIENT_ID = b"a client"
CLOSED = b"closed"
RESPONSE_HEADER_BYTES = 9


class NoMemory(dict[tuple[int, int], Introduction]):
    """A connection that knows no header again, and so no request."""

    def __setitem__(self, key: tuple[int, int], value: Introduction) -> None:
        pass


class WatchedDispatcher(Dispatcher):
    """Counts what goes by handlers."""

    by_handlers = 0

    def _dispatch(self, frame: Frame, known: Introduction) -> Answer:
        self.by_handlers += 1
        return super()._dispatch(frame, known)


class Sent:
    """What becomes of one frame."""

    def __init__(self, frame: bytes, answer: Answer, *, is_closed: bool, is_repeat: bool) -> None:
        self.frame = frame
        self.answer = answer
        self._is_closed = is_closed
        self.is_repeat = is_repeat
        if isinstance(answer, PendingAnswer):
            answer.when_done(lambda _: None)

    @property
    def waits(self) -> bool:
        return isinstance(self.answer, PendingAnswer) and self.answer.chunks is None and not self.answer.failed

    @property
    def told(self) -> bytes | None:
        """The bytes of the answer; None: there is none, or not yet."""
        answer = self.answer
        if self._is_closed or (isinstance(answer, PendingAnswer) and answer.failed):
            return CLOSED
        chunks = answer.chunks if isinstance(answer, PendingAnswer) else answer
        if chunks is None or isinstance(chunks, bytes):
            return chunks
        return b"".join(each.read() if isinstance(each, FileRegion) else bytes(each) for each in chunks)


class Side:
    """One broker in virtual time, and the connections of its clients."""

    def __init__(self, *, remembers: bool, properties: Mapping[str, str], replicas: Sequence[int]) -> None:
        self.loop = virtual_loop()
        self.world = World(properties, scheduler=self.loop)
        self.coordinator = Coordinator(self.world)
        self.services: Services = self.world.services
        for broker_id in (2, 3):
            endpoints = (Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, "PLAINTEXT"),)
            self.world.run(self.world.metadata.register_broker(BrokerInfo(broker_id, None, endpoints)))
        self.topic_ids: dict[str, bytes] = {}
        self._replicas = tuple(replicas)
        self._remembers = remembers
        self._peers: dict[str, Peer] = {}
        self.dispatcher = WatchedDispatcher(self.services)

    def create(self, name: str, partitions: int) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(self._replicas))
            for index in range(partitions)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        (result,) = self.world.ask(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == 0, result.error_message
        self.topic_ids[name] = result.topic_id

    def peer(self, connection: str) -> Peer:
        peer = self._peers.get(connection)
        if peer is None:
            peer = self._peers[connection] = Peer("PLAINTEXT")
            if not self._remembers:
                peer.introductions = NoMemory()
        return peer

    def reconnect(self, *connections: str) -> None:
        """The client comes anew over these connections, or over all."""
        for connection in connections or tuple(self._peers):
            self._peers.pop(connection, None)

    def send(self, frame: bytes, connection: str, *, is_lent: bool) -> Sent:
        """Dispatch a frame in the loop. One that is lent can be written to, and is overwritten afterwards."""
        given: Frame = memoryview(bytearray(frame)) if is_lent else frame
        sent: list[Sent] = []

        def dispatch() -> None:
            before, answer, is_closed = self.dispatcher.by_handlers, None, False
            try:
                answer = self.dispatcher.dispatch(given, self.peer(connection), is_lent=is_lent)
            except ProtocolError:
                is_closed = True
            is_repeat = self.dispatcher.by_handlers == before and not is_closed
            sent.append(Sent(frame, answer, is_closed=is_closed, is_repeat=is_repeat))

        self.soon(dispatch)
        if is_lent:
            given[:] = bytes(len(frame))  # type: ignore[index]  # is a memoryview
        return sent[0]

    def soon(self, action: Callable[[], object]) -> None:
        """Do something in the loop, and all that comes of it without waiting for time."""
        self.loop.call_soon(action)
        self.loop.run_until(self.loop.time())

    def pass_ms(self, ms: int) -> None:
        self.world.clock.advance(ms)
        self.loop.run_until(self.loop.time() + ms / 1000)

    def lead_anew(self, log: Log) -> None:
        """Another election, which this broker has won."""
        replicas = self.services.replicas
        epoch = max(log.leader_epochs.latest, 0) + 1
        ids = (BROKER_ID, *(each for each in self._replicas if each != BROKER_ID))
        high_watermark = log.log_end_offset if len(ids) == 1 else log.log_start_offset
        partition = Partition(
            self.topic_ids[TOPIC], log, epoch, ids, broker_id=BROKER_ID, high_watermark=high_watermark,
            clock=self.world.clock,
        )  # fmt: skip
        self.soon(lambda: replicas.lead(partition))

    def break_disk(self, error: Callable[[str], OSError | None] | None) -> None:
        """Let appends to logs fail by what `error` says of their paths; None: they do not any more."""

        def check_append(path: str) -> None:
            failure = error(path) if error is not None and path.endswith(".log") else None
            if failure is not None:
                raise failure

        self.world.files.check_append = check_append  # type: ignore[method-assign]

    def state(self) -> dict[str, object]:
        """All that requests may change."""
        return dict(self._states())

    def _states(self) -> Iterator[tuple[str, object]]:
        for log in self.services.logs:
            yield f"log {log.topic_partition}", state_of_log(self.world, log)
        for partition in self.services.replicas.led():
            followers = [
                (each.replica_id, each.log_end_offset, each.broker_epoch) for each in partition.followers.values()
            ]
            waiting = (bool(partition.waiters), len(partition.replica_waiters), len(partition._commits))
            yield repr(partition), (partition.in_sync_replicas, followers, waiting)
        sessions = self.services.fetch_sessions
        yield "sessions", (len(sessions), sessions.partitions, len(sessions.of_replicas))

    def close(self) -> None:
        self.world.close()


def state_of_log(world: World, log: Log) -> tuple[object, ...]:
    if log.failure is not None:
        return "failed", log.log_end_offset
    active = log.segments.active
    active.settle()
    files = {name: world.files.read(f"{log.directory}/{name}") for name in world.files.list(log.directory)}
    tails = (bytes(active.index.entries.tail), bytes(active.time_index.entries.tail))
    times = (active.max_timestamp, active.offset_of_max_timestamp, active.first_timestamp)
    seen = [entry.last_seen_ms for entry in log.producers]
    return files, tails, times, render_snapshot(log.producers), seen, log.log_end_offset, active.size, log.is_full


class BothSides:
    """The two of them. `lends`: the first one's frames are lent where a connection may do that."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        replicas: Sequence[int] = (1,),
        lends: bool = False,
        properties: Mapping[str, str] | None = None,
        topics: Sequence[str] = (TOPIC,),
    ) -> None:
        self.fast, self.slow = self.sides = tuple(
            Side(remembers=remembers, properties=properties or {}, replicas=replicas) for remembers in (True, False)
        )
        for side in self.sides:
            for name in topics:
                side.create(name, partitions)
        assert self.fast.topic_ids == self.slow.topic_ids
        self.topic_ids = self.fast.topic_ids
        self.partitions = partitions
        self.replicas = tuple(replicas)
        self._lends = lends
        self._correlation_id = 0
        self._waiting: list[tuple[Sent, Sent]] = []
        self.last: tuple[Sent, Sent]

    def each(self, action: Callable[[Side], object]) -> None:
        for side in self.sides:
            action(side)

    def frame(self, request: Message, version: int) -> bytes:
        self._correlation_id += 1
        head = struct.pack(">hhih", request.api_key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        return head + b"\0" + codec.encode(request, version)

    def send(self, frame: bytes, connection: str = "producer") -> bytes | None:
        """The answer, which both give; None: both wait, or give none. A consumer's frames are too short to be lent."""
        is_lent = self._lends and connection != "consumer"
        self.last = (
            self.fast.send(frame, connection, is_lent=is_lent),
            self.slow.send(frame, connection, is_lent=False),
        )
        self._waiting.append(self.last)
        return self.check()

    def do(self, action: Callable[[Side], object]) -> bytes | None:
        """Something happens to both; the answer to what was sent last."""
        self.each(lambda side: side.soon(lambda: action(side)))
        return self.check()

    def pass_ms(self, ms: int) -> bytes | None:
        self.each(lambda side: side.pass_ms(ms))
        return self.check()

    def check(self) -> bytes | None:
        """Compare every answer that is there by now; returns the last one's."""
        for ours, theirs in self._waiting:
            told = [(each.waits, each.told and each.told.hex(" ")) for each in (ours, theirs)]
            assert told[0] == told[1], (
                f"repeat: {ours.is_repeat}\nfast: {told[0]}\nslow: {told[1]}\nto {ours.frame.hex()}"
            )
        self._waiting = [each for each in self._waiting if each[0].waits]
        return self.last[0].told if hasattr(self, "last") else None

    def check_state(self) -> None:
        ours, theirs = self.fast.state(), self.slow.state()
        different = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        assert not different, [(key, ours.get(key), theirs.get(key)) for key in different]

    @property
    def is_repeat(self) -> bool:
        """Whether the last frame took its fast path."""
        return self.last[0].is_repeat

    def hang_up(self) -> None:
        """The clients of all that waits are gone."""
        for pair in self._waiting:
            for sent in pair:
                if isinstance(sent.answer, PendingAnswer):
                    sent.answer.cancel()
        self._waiting = []
        self.each(lambda side: side.soon(lambda: None))

    def close(self) -> None:
        self.hang_up()
        self.each(Side.close)


def decoded(api_key: int, version: int, answer: bytes | None) -> Any:
    assert answer is not None
    return codec.decode(response_type(api_key), version, answer, RESPONSE_HEADER_BYTES)
