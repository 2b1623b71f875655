"""Whether a consumer's fetch was like one before it or not: the answer is the same."""

import asyncio
import struct
from collections.abc import Iterator
from random import Random

import pytest

from moldau.broker.dispatch import Answer, Dispatcher, Peer
from moldau.fastpath.consumer_fetch import ConsumerFetch
from moldau.log.verification import NOT_VERIFIED
from moldau.protocol import codec
from moldau.protocol.layouts import CONSUMER_FETCH_VERSIONS
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.records.batch import EndTxnMarker, Record, build_batch, build_end_txn_marker
from moldau.requests.pending import PendingAnswer
from tests.handlers.conftest import World

NEWEST = 18
CLIENT_ID = b"a consumer"
LONG_MS = 60_000
ENOUGH_BYTES = 1 << 20
WITHOUT_SESSION = (0, -1)


class Side:
    """A broker and the connection of its consumer."""

    def __init__(self, *, remembers: bool) -> None:
        self.world = World({})
        self.topic_id = self.world.create("t", 2)
        self._dispatcher = Dispatcher(self.world.services)
        self._peer = Peer("PLAINTEXT")
        self._remembers = remembers

    def dispatch(self, frame: bytes) -> Answer:
        if not self._remembers:
            self._peer = Peer("PLAINTEXT")

        async def dispatch() -> Answer:
            answer = self._dispatcher.dispatch(frame, self._peer)
            if isinstance(answer, PendingAnswer):
                answer.when_done(lambda _: None)
            return answer

        return self.world.run(dispatch())

    def turn(self) -> None:
        """Let the loop do what is due."""

        async def turn() -> None:
            for _ in range(3):
                await asyncio.sleep(0)

        self.world.run(turn())


class Consumers:
    """Two brokers whose consumers send the same: one over one connection, one over a new connection each time."""

    def __init__(self) -> None:
        self.sides = (Side(remembers=True), Side(remembers=False))
        assert self.sides[0].topic_id == self.sides[1].topic_id
        self._correlation_id = 0
        self.last: tuple[Answer, Answer] = (None, None)

    def frame(self, offset: int | None, version: int = NEWEST, **changes: object) -> bytes:
        """Without an offset it names no partition: its session knows."""
        partition = {
            "partition": 0, "current_leader_epoch": 0, "last_fetched_epoch": -1, "partition_max_bytes": ENOUGH_BYTES,
        }  # fmt: skip
        request = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": ENOUGH_BYTES, "session_epoch": -1}
        for name, value in changes.items():
            (partition if name in partition else request)[name] = value  # type: ignore[assignment]  # of any field
        topics = []
        if offset is not None:
            asked = FetchPartition(fetch_offset=offset, **partition)  # type: ignore[arg-type]
            topics.append(FetchTopic(topic_id=self.sides[0].topic_id, partitions=[asked]))
        body = FetchRequest(topics=topics, **request)  # type: ignore[arg-type]
        self._correlation_id += 1
        head = struct.pack(">hhih", 1, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        return head + b"\0" + codec.encode(body, version)

    def fetch(self, offset: int | None, version: int = NEWEST, **changes: object) -> bytes | None:
        """What both answer; None: both wait."""
        frame = self.frame(offset, version, **changes)
        self.last = (self.sides[0].dispatch(frame), self.sides[1].dispatch(frame))
        return self.answered()

    def answered(self) -> bytes | None:
        ours, theirs = map(_bytes_of, self.last)
        assert ours == theirs
        return ours

    @property
    def is_repeat(self) -> bool:
        """Whether the last one was: what waits shows it."""
        return isinstance(self.last[0], ConsumerFetch)

    def produce(self, count: int = 1) -> bytes | None:
        """Records for both; what the fetch that waits is answered."""
        for side in self.sides:
            side.world.produce("t", count)
            side.turn()
        return self.answered()

    def append_own(self, batch: bytes) -> bytes | None:
        """A batch of a transaction, or its end, for both; what the fetch that waits is answered."""
        for side in self.sides:
            side.world.services.replicas.get("t", 0).append_own(batch, side.world.services.clock.now_ms(), NOT_VERIFIED)
            side.turn()
        return self.answered()

    def close(self) -> None:
        for side in self.sides:
            side.world.close()


def _bytes_of(answer: Answer) -> bytes | None:
    chunks = answer.chunks if isinstance(answer, PendingAnswer) else answer
    if chunks is None or isinstance(chunks, bytes):
        return chunks
    return b"".join(bytes(chunk) if isinstance(chunk, bytes | memoryview) else chunk.read() for chunk in chunks)


def _response(answer: bytes | None) -> FetchResponse:
    assert answer is not None
    return codec.decode(FetchResponse, NEWEST, answer, 9)


@pytest.fixture
def consumers() -> Iterator[Consumers]:
    made = Consumers()
    yield made
    made.close()


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", CONSUMER_FETCH_VERSIONS)
def test_a_consumer_that_waits_gets_the_next_records(consumers: Consumers, version: int, isolation_level: int) -> None:
    changes = {"version": version, "isolation_level": isolation_level, "max_wait_ms": LONG_MS}
    assert consumers.fetch(0, **changes) is None
    assert not consumers.is_repeat
    for offset in range(3):
        assert consumers.produce() is not None
        assert consumers.fetch(offset, **changes) is not None
        assert consumers.fetch(offset + 1, **changes) is None
        assert consumers.is_repeat


def test_it_waits_for_as_many_bytes_as_it_wants(consumers: Consumers) -> None:
    consumers.fetch(0)
    assert consumers.fetch(0, max_wait_ms=LONG_MS, min_bytes=150) is None
    assert consumers.is_repeat
    assert consumers.produce() is None
    assert consumers.produce() is None
    answer = consumers.produce()
    (partition,) = _response(answer).responses[0].partitions
    assert partition.high_watermark == 3


@pytest.mark.parametrize("is_first", [True, False])
def test_a_reader_of_committed_records_sleeps_through_an_open_transaction(consumers: Consumers, is_first: bool) -> None:
    """It is answered once, with records, when the transaction ends: not emptily with each append of anybody."""
    if not is_first:
        consumers.fetch(0)
    consumers.append_own(
        build_batch([Record(0, 1, None, b"v")], producer_id=7, producer_epoch=0, is_transactional=True)
    )
    assert consumers.fetch(0, isolation_level=1, max_wait_ms=LONG_MS) is None
    assert consumers.is_repeat is not is_first
    assert consumers.produce() is None
    assert consumers.produce() is None
    ended = build_end_txn_marker(EndTxnMarker(True, 0), producer_id=7, producer_epoch=0, timestamp=1)
    (partition,) = _response(consumers.append_own(ended)).responses[0].partitions
    assert (partition.last_stable_offset, partition.high_watermark) == (4, 4)
    assert partition.records


def test_the_time_is_up(consumers: Consumers) -> None:
    consumers.fetch(0)
    assert consumers.fetch(0, max_wait_ms=200) is None
    assert consumers.is_repeat

    for side in consumers.sides:

        async def wait(side: Side = side) -> None:
            while _bytes_of(consumers.last[consumers.sides.index(side)]) is None:
                await asyncio.sleep(0.005)

        side.world.run(wait())
    assert _response(consumers.answered()).responses[0].partitions[0].error_code == 0


def test_a_topic_that_goes_is_told(consumers: Consumers) -> None:
    consumers.fetch(0)
    assert consumers.fetch(0, max_wait_ms=LONG_MS) is None
    assert consumers.is_repeat
    for side in consumers.sides:
        side.world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
        side.turn()
    (partition,) = _response(consumers.answered()).responses[0].partitions
    assert partition.error_code != 0


def test_who_is_gone_waits_no_more(consumers: Consumers) -> None:
    consumers.fetch(0)
    assert consumers.fetch(0, max_wait_ms=LONG_MS) is None
    for side, answer in zip(consumers.sides, consumers.last, strict=True):
        assert isinstance(answer, PendingAnswer)
        answer.cancel()
        assert not side.world.services.replicas.get("t", 0).waiters
    assert consumers.produce() is None


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 7},
        {"offset": -1},
        {"current_leader_epoch": 1},
        {"last_fetched_epoch": 5},
        {"last_fetched_epoch": 0},
        {"partition": 9},
        {"rack_id": "r1"},
        {"max_bytes": 1},
        {"partition_max_bytes": 1},
        {"max_bytes": 0, "partition_max_bytes": 0},
        {"min_bytes": 0, "max_wait_ms": LONG_MS},
        {"session_id": 5, "session_epoch": 7},
        {"session_id": 5},
        {"isolation_level": 3},
    ],
)
def test_whatever_it_asks_the_answer_is_the_handlers(consumers: Consumers, changes: dict[str, int]) -> None:
    consumers.produce(3)
    for _ in range(3):
        assert consumers.fetch(**{"offset": 1, **changes}) is not None
        assert consumers.fetch(1) is not None


def test_a_session_of_one_partition_goes_on(consumers: Consumers) -> None:
    session_id = _response(consumers.fetch(0, session_epoch=0)).session_id
    assert session_id
    for epoch in range(1, 6):
        same = {"session_id": session_id, "max_wait_ms": LONG_MS}
        assert consumers.fetch(epoch - 1, session_epoch=2 * epoch - 1, **same) is None
        assert consumers.is_repeat
        consumers.produce()
        told = _response(consumers.fetch(epoch, session_id=session_id, session_epoch=2 * epoch))
        assert told.responses == []  # all is known
    assert _response(consumers.fetch(5, session_id=session_id, session_epoch=3)).error_code == 71


def test_a_session_may_ask_for_the_same_again(consumers: Consumers) -> None:
    session_id = _response(consumers.fetch(0, session_epoch=0)).session_id
    for epoch in range(1, 12, 4):
        same = {"session_id": session_id, "max_wait_ms": LONG_MS}
        assert consumers.fetch(None, session_epoch=epoch, **same) is None
        assert consumers.is_repeat
        assert _response(consumers.produce()).responses
        again = _response(consumers.fetch(None, session_epoch=epoch + 1, **same))
        assert again.responses[0].partitions[0].records
        end = consumers.sides[0].world.log_of("t").log_end_offset
        assert _response(consumers.fetch(end, session_id=session_id, session_epoch=epoch + 2)).responses == []
        assert _response(consumers.fetch(None, session_id=session_id, session_epoch=epoch + 3)).responses == []


@pytest.mark.parametrize(
    "changes",
    [
        {"session_epoch": 1, "rack_id": "r"},
        {"session_epoch": 1, "isolation_level": 1},
        {"session_epoch": 2},
        {"session_epoch": 1, "session_id": 1},
        {"session_epoch": -1},
        {"session_epoch": 0},
    ],
)
def test_whatever_a_session_asks_without_a_partition(consumers: Consumers, changes: dict[str, int]) -> None:
    consumers.produce(3)
    session_id = _response(consumers.fetch(1, session_epoch=0)).session_id
    assert consumers.fetch(None, **{"session_id": session_id, **changes}) is not None


def test_a_session_of_two_partitions_is_the_handlers(consumers: Consumers) -> None:
    session_id = _response(consumers.fetch(0, session_epoch=0)).session_id
    same = {"session_id": session_id, "max_wait_ms": LONG_MS}
    assert consumers.fetch(0, partition=1, session_epoch=1, session_id=session_id) is not None
    assert consumers.fetch(None, session_epoch=2, **same) is None
    assert not consumers.is_repeat
    assert _response(consumers.produce()).responses


def test_records_that_a_session_wants_may_be_gone(consumers: Consumers) -> None:
    consumers.produce(3)
    session_id = _response(consumers.fetch(0, session_epoch=0)).session_id
    part = DeleteRecordsPartition(partition_index=0, offset=2)
    for side in consumers.sides:
        side.world.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])]))
    told = _response(consumers.fetch(None, session_id=session_id, session_epoch=1))
    assert told.responses[0].partitions[0].error_code == 1


def test_any_course_of_things(consumers: Consumers, seeded: Random) -> None:
    session = WITHOUT_SESSION
    for _ in range(400):
        end = consumers.sides[0].world.log_of("t").log_end_offset
        start = consumers.sides[0].world.log_of("t").log_start_offset
        dice = seeded.random()
        if dice < 0.3:
            consumers.last = (None, None)
            consumers.produce(seeded.randint(1, 3))
        elif dice < 0.35:
            before = seeded.randint(start, end)
            part = DeleteRecordsPartition(partition_index=0, offset=before)
            for side in consumers.sides:
                side.world.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[part])]))
        else:
            answer = consumers.fetch(
                seeded.choice((end, end, end, start, seeded.randint(0, end + 1), None, None)),
                max_wait_ms=seeded.choice((0, LONG_MS)),
                min_bytes=seeded.choice((0, 1, 200)),
                max_bytes=seeded.choice((100, ENOUGH_BYTES)),
                isolation_level=seeded.choice((0, 1)),
                last_fetched_epoch=seeded.choice((-1, 0)),
                session_id=session[0],
                session_epoch=session[1],
            )
            for _ in range(300):
                if answer is not None:
                    break
                answer = consumers.produce()
            told = _response(answer)
            if told.error_code or seeded.random() < 0.1:
                session = WITHOUT_SESSION if seeded.random() < 0.5 else (0, 0)
            elif session != WITHOUT_SESSION and told.session_id:
                session = (told.session_id, session[1] + 1)
