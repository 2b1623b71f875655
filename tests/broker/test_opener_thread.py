"""Whatever records a request makes the broker open, the event loop does not stand still for it."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from moldau.broker.watchdog import STALL_MS_MAX
from moldau.protocol import codec
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.records.batch import Record, build_batch
from moldau.records.compression import Codec
from moldau.records.legacy import CONVERTED_RECORDS_MAX, build_message_set, read_message_set
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.raw import RawClient, request_frame
from tests.records.hostile import many_records

PRODUCE, FETCH, LIST_OFFSETS, FIND_COORDINATOR, CREATE_TOPICS, CONSUMER_HEARTBEAT = 0, 1, 2, 10, 19, 68
LONG_S = 60.0
COMPACTED = {"cleanup.policy": "compact"}
YEAR_MS = 365 * 24 * 3_600_000


class Probe:
    """Comes back to the loop every millisecond, and sees for how long its thread was at work in between."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._worked = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.longest_work_ms = 0.0

    async def start(self) -> None:
        self._worked = time.thread_time()
        self._look()

    async def stop(self) -> None:
        self._look()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        worked = time.thread_time()
        self.longest_work_ms = max(self.longest_work_ms, 1000 * (worked - self._worked))
        self._worked = worked
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0.001, self._look)


@contextmanager
def no_stall(kafka: BrokerInThread) -> Iterator[None]:
    """While this lasts the loop's thread never works for longer than it may without a turn."""
    loop = kafka._loop
    probe = Probe(loop)
    gc.collect()
    gc.freeze()  # whatever the tests before have left in this process is not the broker's to walk over
    asyncio.run_coroutine_threadsafe(probe.start(), loop).result()
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(probe.stop(), loop).result()
        gc.unfreeze()
    assert probe.longest_work_ms < STALL_MS_MAX


def client(kafka: BrokerInThread) -> RawClient:
    made = RawClient(kafka.bootstrap)
    made.socket.settimeout(LONG_S)
    return made


def make_topic(asking: RawClient, configs: Mapping[str, str] | None = None, partitions: int = 1) -> None:
    settings = [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1, configs=settings)
    answer = asking.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def produce(*batches: bytes, acks: int = -1) -> ProduceRequest:
    """Each batch to a partition of its own."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def send_produce(sending: RawClient, version: int, request: ProduceRequest, correlation_id: int = 7) -> None:
    sending.send(request_frame(PRODUCE, version, codec.encode(request, version), correlation_id))


def outcome(answer: ProduceResponse) -> list[tuple[int, int]]:
    """Error code and base offset for each partition."""
    return [(each.error_code, each.base_offset) for each in answer.responses[0].partition_responses]


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not happened():
        assert time.monotonic() < deadline


def end_offset(asking: RawClient) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    offset: int = asking.ask(LIST_OFFSETS, 4, request, ListOffsetsResponse).topics[0].partitions[0].offset
    return offset


def test_a_look_up_by_time_does_not_hold_the_loop() -> None:
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking)
        for count in (400_000, 400_000, 5_000_000):
            batch = many_records(count, timestamp=YEAR_MS, max_timestamp=3 * YEAR_MS)
            assert outcome(asking.ask(PRODUCE, 9, produce(batch), ProduceResponse))[0][0] == 0
        asked = ListOffsetsPartition(partition_index=0, timestamp=2 * YEAR_MS)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        with no_stall(kafka):
            told = asking.ask(LIST_OFFSETS, 9, request, ListOffsetsResponse).topics[0].partitions[0]
        assert (told.error_code, told.offset) == (0, 400_000)


RULES = [COMPACTED, {"compression.type": "gzip"}, {"compression.type": "uncompressed"}]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_batches_that_must_be_opened_do_not_hold_the_loop(rules: dict[str, str]) -> None:
    with broker({"message.max.bytes": "10000000"}) as kafka, client(kafka) as asking:
        make_topic(asking, rules)
        batch = many_records(150_000, Codec.LZ4, numbered=True, timestamp=YEAR_MS)
        with no_stall(kafka):
            for number, version in enumerate([3, 9]):
                answer = asking.ask(PRODUCE, version, produce(batch), ProduceResponse)
                assert outcome(answer) == [(0, number * 150_000)]


def test_many_small_batches_do_not_hold_the_loop_together() -> None:
    """Each of them alone would."""
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking, COMPACTED)
        batch = many_records(1_000, numbered=True, timestamp=YEAR_MS)
        data = [PartitionProduceData(index=0, records=batch) for _ in range(250)]
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        with no_stall(kafka):
            asking.ask(PRODUCE, 8, request, ProduceResponse)


@pytest.mark.parametrize(("version", "magic"), [(1, 0), (2, 1)])
def test_message_sets_of_old_producers_do_not_hold_the_loop(version: int, magic: int) -> None:
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking)
        records = [Record(offset, YEAR_MS, b"k", b"v") for offset in range(40_000)]
        data = build_message_set(records, magic=magic, codec=Codec.GZIP)
        with no_stall(kafka):
            assert outcome(asking.ask(PRODUCE, version, produce(data), ProduceResponse)) == [(0, 0)]
        assert end_offset(asking) == 40_000


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_behind_one_that_is_opened_keep_their_order(version: int, acks: int) -> None:
    """An idempotent producer has five requests in flight; a batch out of its turn would be refused."""
    sizes = [1, 1, 50_000, 1, 20_000, 2, 3, 30_000, 1]
    with broker() as kafka, client(kafka) as sending:
        make_topic(sending, COMPACTED)
        sequence = 0
        for number, size in enumerate(sizes):
            batch = many_records(size, numbered=True, timestamp=YEAR_MS, producer=(9, sequence))
            send_produce(sending, version, produce(batch, acks=acks), number)
            sequence += size
        answers = [sending.answer(PRODUCE, version, ProduceResponse, number) for number in range(len(sizes))]
        assert [outcome(each) for each in answers] == [[(0, sum(sizes[:number]))] for number in range(len(sizes))]


def test_of_a_request_like_those_before_only_some_batches_may_have_to_be_opened() -> None:
    small, large = (many_records(count, numbered=True, timestamp=YEAR_MS) for count in (1, 20_000))
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking, COMPACTED, 3)
        requests = [produce(small, small, small), produce(small, large, small), produce(large, small, large)]
        outcomes = [outcome(asking.ask(PRODUCE, 9, each, ProduceResponse)) for each in requests]
        assert outcomes == [[(0, 0)] * 3, [(0, 1)] * 3, [(0, 2), (0, 20_001), (0, 2)]]


def test_a_batch_is_appended_whoever_waits_for_it() -> None:
    batch = many_records(50_000, numbered=True, timestamp=YEAR_MS)
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking, COMPACTED)
        with client(kafka) as leaving:
            send_produce(leaving, 8, produce(batch, acks=0))
            send_produce(leaving, 8, produce(build_batch([Record(0, YEAR_MS, b"k", b"v")]), acks=1), 8)
            assert outcome(leaving.answer(PRODUCE, 8, ProduceResponse, 8)) == [(0, 50_000)]
            send_produce(leaving, 8, produce(batch, acks=0))
        until(lambda: end_offset(asking) == 100_001)


def test_an_error_found_while_opening_closes_a_connection_without_acks() -> None:
    batch = many_records(50_000, timestamp=YEAR_MS)  # all of them have the same offset
    with broker() as kafka, client(kafka) as asking, client(kafka) as careless:
        make_topic(asking, COMPACTED)
        send_produce(careless, 8, produce(batch, acks=0))
        assert careless.is_closed_by_the_broker()
        assert outcome(asking.ask(PRODUCE, 8, produce(batch), ProduceResponse)) == [(87, -1)]


def old_fetch(offset: int, *, max_wait_ms: int = 0, partitions: int = 1) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 30) for index in range(partitions)
    ]
    return FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic="t", partitions=wanted)]
    )


def offsets_in(told: PartitionData) -> list[int]:
    assert isinstance(told.records, bytes | memoryview)
    return [record.offset for record in read_message_set(told.records)]


@pytest.mark.parametrize(("version", "codec_name"), [(0, "none"), (3, "lz4")])
def test_an_old_consumer_gets_all_records_and_the_loop_is_not_held(version: int, codec_name: str) -> None:
    """A batch may be larger than what one answer opens: then its answers end inside it."""
    batches = [70_000, 3, 60_000]
    with broker({"message.max.bytes": "10000000"}) as kafka, client(kafka) as asking:
        make_topic(asking)
        for size in batches:
            batch = many_records(size, Codec[codec_name.upper()], numbered=True, timestamp=YEAR_MS)
            asking.ask(PRODUCE, 9, produce(batch), ProduceResponse)
        next_offset = 0
        with no_stall(kafka):
            while next_offset < sum(batches):
                answer = asking.ask(FETCH, version, old_fetch(next_offset), FetchResponse)
                (told,) = answer.responses[0].partitions
                offsets = [offset for offset in offsets_in(told) if offset >= next_offset]
                assert offsets[0] == next_offset
                assert offsets == list(range(next_offset, offsets[-1] + 1))
                assert len(offsets) <= CONVERTED_RECORDS_MAX
                next_offset = offsets[-1] + 1


def test_no_partition_is_forgotten_by_answers_that_are_full() -> None:
    batch = many_records(CONVERTED_RECORDS_MAX, Codec.LZ4, numbered=True, timestamp=YEAR_MS)
    with broker({"message.max.bytes": "10000000"}) as kafka, client(kafka) as asking:
        make_topic(asking, partitions=2)
        asking.ask(PRODUCE, 9, produce(batch, batch), ProduceResponse)
        told: set[int] = set()
        while len(told) < 2:
            answer = asking.ask(FETCH, 2, old_fetch(0, partitions=2), FetchResponse)
            told |= {each.partition_index for each in answer.responses[0].partitions if each.records}


def test_an_old_consumer_waits_for_what_is_produced_meanwhile() -> None:
    with broker() as kafka, client(kafka) as asking, client(kafka) as waiting:
        make_topic(asking)
        body = codec.encode(old_fetch(0, max_wait_ms=60_000), 2)
        waiting.send(request_frame(FETCH, 2, body))
        asking.ask(PRODUCE, 9, produce(many_records(3, numbered=True, timestamp=YEAR_MS, codec=0)), ProduceResponse)
        (told,) = waiting.answer(FETCH, 2, FetchResponse).responses[0].partitions
        assert offsets_in(told) == [0, 1, 2]


def heartbeat(pattern: str | None, member: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"group-{member}",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[] if epoch == 0 else None,
    )


def test_patterns_over_many_topics_do_not_hold_the_loop() -> None:
    """The worst ones that are accepted, of many groups at once, over long names. They match internal topics, too."""
    with broker() as kafka, client(kafka) as asking:
        asking.ask(FIND_COORDINATOR, 0, FindCoordinatorRequest(key="g"), FindCoordinatorResponse)
        names = [f"{number:03}-" + "ab.c" * 60 for number in range(100)]
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        asking.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
        patterns = {f"{number}": f"(.?){{190}}(.?){{{number + 150}}}" for number in range(6)}
        asked = {member: heartbeat(pattern, member) for member, pattern in patterns.items()}
        deadline = time.monotonic() + LONG_S
        with no_stall(kafka):
            while asked:
                assert time.monotonic() < deadline
                for member, request in tuple(asked.items()):
                    answer = asking.ask(CONSUMER_HEARTBEAT, 1, request, ConsumerGroupHeartbeatResponse)
                    assert answer.error_code == 0
                    asked[member] = heartbeat(None, member, answer.member_epoch)
                    if answer.assignment is not None and len(answer.assignment.topic_partitions) > len(names):
                        del asked[member]


def test_an_old_consumer_that_is_gone_waits_for_nothing() -> None:
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking)
        waiters = kafka._inner.broker.services.replicas.get("t", 0).waiters
        with client(kafka) as leaving:
            leaving.send(request_frame(FETCH, 2, codec.encode(old_fetch(0, max_wait_ms=2**31 - 1), 2)))
            until(lambda: len(waiters) == 1)
        until(lambda: not waiters)
