"""Old consumers get from Moldau what Apache Kafka 0.10.2 answers to them, after the same produce requests.

Messages that are not compressed are the same bytes. Compressed ones are compared wrapper by wrapper: offset, format,
attributes, timestamp, and what is inside, byte for byte; the compressed bytes are each compressor's own.

Moldau stores batches of version 2, so it answers as a broker with `log.message.format.version=0.10.2`. With 0.8.2 (and
0.9) Kafka sends messages of version 0 to consumers that ask with Fetch 2, too; Fetch 0 and 1 are the same.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.records import legacy
from moldau.records.batch import CODEC_MASK
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.testing.brokers import BrokerInThread
from tests.broker.raw import RawClient
from tests.eras.apache import running_kafka
from tests.eras.conftest import ALL_ERAS
from tests.zookeeper_ensemble import Ensemble

SIZES = (1, 12, 26, 40, 100, 333, 1000, 5000, 1_000_000)
"""Of `max_bytes`: less than a message, in the middle of one, more than all."""
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
ATTRIBUTES_POSITION = 17
TIMESTAMP_MS = 1_400_000_000_000
STEP = 1 if ALL_ERAS else 5
"""Of the offsets that are asked for."""
WAIT_S = 60.0


class Both(NamedTuple):
    """The same requests go to both brokers."""

    kafka: RawClient
    moldau: RawClient
    message_format: str

    def produce(self, topic: str, version: int, messages: bytes) -> None:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=messages)])
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
        answers = [
            broker.ask(0, version, request, ProduceResponse).responses[0].partition_responses[0]
            for broker in (self.kafka, self.moldau)
        ]
        assert answers[0].error_code == answers[1].error_code == 0
        assert answers[0].base_offset == answers[1].base_offset


class Answer(NamedTuple):
    error_code: int
    high_watermark: int
    messages: bytes


class Asked(NamedTuple):
    """A Fetch of both, and whether the first message at `offset` is compressed: the start of one does not tell."""

    version: int
    offset: int
    size: int
    is_compressed: bool


def fetch(broker: RawClient, topic: str, version: int, offset: int, size: int) -> Answer:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    told = broker.ask(1, version, request, FetchResponse).responses[0].partitions[0]
    return Answer(told.error_code, told.high_watermark, bytes(told.records or b""))  # type: ignore[arg-type]


def make_topic(broker: RawClient, topic: str) -> None:
    """By asking for it, as programs of that time did."""
    deadline = time.monotonic() + WAIT_S
    while True:
        told = broker.ask(3, 0, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse).topics[0]
        if told.error_code == 0 and told.partitions and told.partitions[0].leader_id >= 0:
            return
        assert time.monotonic() < deadline, f"no leader for {topic}"
        time.sleep(0.05)


@pytest.fixture(scope="module", params=["0.10.2", "0.8.2"])
def both(
    request: pytest.FixtureRequest, ensemble: Ensemble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    directory: Path = tmp_path_factory.mktemp("apache")
    with ExitStack() as stack:
        zookeeper = f"{ensemble.connect}/apache-{request.param}"
        kafka = stack.enter_context(running_kafka(zookeeper, directory, request.param))
        broker = BrokerInThread(directory / "moldau-logs", {"num.partitions": "1"})
        broker.start()
        stack.callback(broker.stop)
        theirs, ours = (stack.enter_context(RawClient(each)) for each in (kafka, broker.bootstrap))
        yield Both(theirs, ours, request.param)


def records(rng: random.Random, count: int) -> list[Record]:
    """With and without key and value; of all sizes."""
    return [
        Record(
            index,
            TIMESTAMP_MS + rng.randrange(1000),
            rng.choice((None, b"", b"organisation %d" % rng.randrange(9))),
            rng.choice((None, b"", b"visit %d " % index * rng.randrange(1, 40))),
        )
        for index in range(count)
    ]


def opened(frame: memoryview) -> tuple[object, ...]:
    """A message; of a wrapper what is inside."""
    legacy.check_message(frame)
    message = legacy.read_message(frame)
    if message.codec == Codec.NONE:
        return bytes(frame), b""
    return message._replace(record=message.record._replace(value=None)), bytes(legacy.decompressed(message))


def compare_stored(kafka: Answer, moldau: Answer, asked: Asked) -> None:
    """Kafka sent what it had stored; Moldau sent the same, or where there was no room for all, less of it."""
    where = f"{asked}: {kafka}, {moldau}"
    assert kafka[:2] == moldau[:2], where
    assert bool(kafka.messages) == bool(moldau.messages), where
    theirs, ours = (legacy.split_frames(each.messages) for each in (kafka, moldau))
    together = min(len(theirs), len(ours))
    assert [opened(frame) for frame in ours[:together]] == [opened(frame) for frame in theirs[:together]], where
    if asked.size == SIZES[-1]:
        assert len(theirs) == len(ours), where
    if not together and not asked.is_compressed:
        assert moldau.messages == kafka.messages, where


def _is_compressed(messages: bytes) -> bool:
    """Whether the first one is, in an answer that had room for all."""
    return len(messages) > ATTRIBUTES_POSITION and messages[ATTRIBUTES_POSITION] & CODEC_MASK != 0


def compare_converted(kafka: Answer, moldau: Answer, asked: Asked) -> None:
    """Kafka 0.10.2 makes one compressed message of all that it converts: only what is inside can be the same."""
    where = f"{asked}: {kafka}, {moldau}"
    assert kafka[:2] == moldau[:2], where
    theirs, ours = (list(legacy.read_message_set(each.messages)) for each in (kafka, moldau))
    if asked.size < SIZES[-1]:
        first = max((each[0].offset for each in (theirs, ours) if each), default=0)
        theirs, ours = ([record for record in each if record.offset >= first] for each in (theirs, ours))
        together = min(len(theirs), len(ours))
        theirs, ours = theirs[:together], ours[:together]
    assert ours == theirs, where


def compare_all(both: Both, topic: str, end: int) -> None:
    magic_stored = 1 if both.message_format == "0.10.2" else 0
    for version in (0, 1, 2, 3) if magic_stored else (0, 1):
        compare = compare_stored if version // 2 == magic_stored else compare_converted
        for offset in (-1, *range(0, end, STEP), end, end + 1):
            is_compressed = _is_compressed(fetch(both.kafka, topic, version, offset, SIZES[-1]).messages)
            for size in SIZES:
                kafka, moldau = (fetch(broker, topic, version, offset, size) for broker in both[:2])
                compare(kafka, moldau, Asked(version, offset, size, is_compressed))


@pytest.mark.parametrize("codec", CODECS)
def test_messages_of_one_producer(both: Both, topic: str, codec: Codec) -> None:
    rng = random.Random(codec)
    for broker in both[:2]:
        make_topic(broker, topic)
    end = 0
    for version in (0, 1, 2):
        for count in (1, 3, 7):
            messages = legacy.build_message_set(records(rng, count), magic=version // 2, codec=codec)
            both.produce(topic, version, messages)
            end += count
    compare_all(both, topic, end)


def test_messages_of_producers_of_all_times(both: Both, topic: str, seeded: random.Random) -> None:
    rng = seeded
    for broker in both[:2]:
        make_topic(broker, topic)
    end = 0
    for _ in range(12):
        version, count = rng.randrange(3), rng.randrange(1, 9)
        messages = legacy.build_message_set(records(rng, count), magic=version // 2, codec=rng.choice(CODECS))
        both.produce(topic, version, messages)
        end += count
    compare_all(both, topic, end)
