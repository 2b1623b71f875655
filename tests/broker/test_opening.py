"""Whatever records a request makes the broker open, the event loop does not stand still for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.broker.watchdog import STALL_MS_MAX
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.raw import RawClient
from tests.records.hostile import many_records

PRODUCE, LIST_OFFSETS, METADATA = 0, 2, 3
LONG_S = 60.0
YEAR_MS = 365 * 24 * 3_600_000


@contextmanager
def no_stall(kafka: BrokerInThread) -> Iterator[None]:
    """While this lasts the loop's thread never works for longer than it may without a turn."""
    watchdog = kafka.watchdog
    assert watchdog is not None
    watchdog.longest_work_ms = 0.0
    yield
    assert watchdog.longest_work_ms < STALL_MS_MAX, watchdog.stalls


def client(kafka: BrokerInThread) -> RawClient:
    made = RawClient(kafka.bootstrap)
    made.socket.settimeout(LONG_S)
    return made


def make_topic(asking: RawClient, name: str = "t") -> None:
    asking.ask(METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), MetadataResponse)


def produce(*batches: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch) for batch in batches]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=data)])


def test_a_look_up_by_time_does_not_hold_the_loop() -> None:
    with broker() as kafka, client(kafka) as asking:
        make_topic(asking)
        for count in (400_000, 400_000, 5_000_000):
            batch = many_records(count, timestamp=YEAR_MS, max_timestamp=3 * YEAR_MS)
            answer = asking.ask(PRODUCE, 9, produce(batch), ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0
        asked = ListOffsetsPartition(partition_index=0, timestamp=2 * YEAR_MS)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
        with no_stall(kafka):
            told = asking.ask(LIST_OFFSETS, 9, request, ListOffsetsResponse).topics[0].partitions[0]
        assert (told.error_code, told.offset) == (0, 400_000)
