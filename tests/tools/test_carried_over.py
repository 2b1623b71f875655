"""A data directory of Apache Kafka 4.3.1, carried over: Moldau opens it and goes on where Kafka stopped.

Two states of one directory: as kill -9 left it; and as a second run, which recovered it and added to it under a higher
leader epoch, closed it.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing import BrokerInThread, broker
from tests.tools.java_tools import ApacheKafka, JavaTools

TIMEOUT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = {"spread": 3, "coded": 1, "txn": 1, "compacted": 1}
TEN_DAYS_MS = 10 * 86_400_000
QUICK = {
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "50",
    "broker.session.timeout.ms": "3000",  # how long the second run has to wait for the first to be forgotten
    "broker.heartbeat.interval.ms": "100",
}


class Read(NamedTuple):
    """A record as a consumer got it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    timestamp: tuple[int, int]
    key: object
    value: object
    headers: object


class Told(NamedTuple):
    """What a broker says of its data."""

    topic_ids: dict[str, str]
    watermarks: dict[tuple[str, int], tuple[int, int]]
    records: list[Read]
    committed: list[Read]


class Carried(NamedTuple):
    """A data directory, and what Kafka said of it before it stopped."""

    data: Path
    told: Told


@pytest.fixture(scope="module")
def carried(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Carried]]:
    directory = tmp_path_factory.mktemp("kafka")
    kafka = ApacheKafka(kafka_classpath, directory, QUICK)
    try:
        write_everything(kafka.bootstrap)
        killed = Carried(directory / "killed", ask(kafka.bootstrap))
    finally:
        kafka.kill()
    shutil.copytree(kafka.data, killed.data)
    with ApacheKafka(kafka_classpath, directory, QUICK) as again:
        write_more(again.bootstrap)
        closed = Carried(again.data, ask(again.bootstrap))
    yield {"killed": killed, "closed": closed}
    shutil.rmtree(directory)


def write_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cleaned_at_once = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
    topics = [
        NewTopic(name, count, 1, config=cleaned_at_once if name == "compacted" else {})
        for name, count in PARTITIONS.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    for codec in CODECS:
        send(bootstrap, "coded", *[f"{codec} {number} " * 9 for number in range(20)], codec=codec)
    for partition in range(3):
        values = [f"{partition} {number}" for number in range(50)]
        send(bootstrap, "spread", *values, partition=partition, idempotent=False)
    write_transactions(bootstrap, "first", "commit", "abort", "commit", "abort")
    write_compacted(bootstrap)


def write_more(bootstrap: str) -> None:
    """Under the next leader epoch."""
    for partition in range(3):
        send(bootstrap, "spread", "in the second run", partition=partition)
    write_transactions(bootstrap, "second", "abort", "commit")


def write_transactions(bootstrap: str, name: str, *ends: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for number, end in enumerate(ends):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("txn", f"{name} {number} {end}", partition=0)
        producer.flush(TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S) if end == "commit" else producer.abort_transaction(TIMEOUT_S)


def write_compacted(bootstrap: str) -> None:
    """Ten values of three keys, old ones, each in a segment of its own; until Kafka's cleaner left one of each."""
    start_ms = time_ns() // 1_000_000 - TEN_DAYS_MS
    for number in range(10):
        time_ms = start_ms + number * 5000
        send(bootstrap, "compacted", f"value {number}", key=f"key {number % 3}", timestamp=time_ms, idempotent=False)
    deadline = monotonic() + TIMEOUT_S
    while len(read(bootstrap, "compacted")) > 4:  # the newest segment is never cleaned
        assert monotonic() < deadline, "Kafka's cleaner did not run"


def send(
    bootstrap: str,
    topic: str,
    *values: str,
    partition: int = 0,
    key: str = "a key",
    timestamp: int = 0,
    codec: str = "none",
    idempotent: bool = True,
) -> list[int]:
    """Produce; the offsets."""
    settings = {"enable.idempotence": idempotent, "compression.type": codec}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset() or 0)

    for value in values:
        headers: dict[str, str | bytes | None] = {"name": b"value"}
        producer.produce(topic, value, key, partition, on_delivery=delivered, timestamp=timestamp, headers=headers)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    return offsets


def ask(bootstrap: str) -> Told:
    """Everything that the broker tells."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection(list(PARTITIONS)), request_timeout=TIMEOUT_S)
    return Told(
        {name: str(future.result().topic_id) for name, future in described.items()},
        watermarks(bootstrap),
        [record for topic in PARTITIONS for record in read(bootstrap, topic)],
        read(bootstrap, "txn", isolation="read_committed"),
    )


def watermarks(bootstrap: str) -> dict[tuple[str, int], tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for topic, count in PARTITIONS.items():
        for number in range(count):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)
            found[topic, number] = (low, high)
    consumer.close()
    return found


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Read]:
    """All records of a topic, partition by partition."""
    return [
        record for number in range(PARTITIONS[topic]) for record in read_from(bootstrap, topic, number, 0, isolation)
    ]


def read_from(
    bootstrap: str, topic: str, partition: int, offset: int, isolation: str = "read_uncommitted", leader_epoch: int = -1
) -> list[Read]:
    """The records of a partition from an offset on; `leader_epoch`: of the record before, if it is known (KIP-320)."""
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": isolation, **settings})
    start = TopicPartition(topic, partition, offset)
    if leader_epoch >= 0:
        start = TopicPartition(topic, partition, offset, leader_epoch=leader_epoch)
    consumer.assign([start])
    found: list[Read] = []
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append(as_read(message))
    raise AssertionError(f"no end of {topic} arrives")


def as_read(message: Message) -> Read:
    return Read(
        str(message.topic()),
        message.partition() or 0,
        message.offset() or 0,
        message.leader_epoch() or 0,
        message.timestamp(),
        message.key(),
        message.value(),
        message.headers(),
    )


@pytest.fixture(params=["killed", "closed"])
def state(request: pytest.FixtureRequest, carried: dict[str, Carried]) -> Carried:
    found: Carried = carried[request.param]
    return found


@pytest.fixture
def moldau(state: Carried, tmp_path: Path) -> Iterator[BrokerInThread]:
    """A broker on a copy, so that tests may write."""
    shutil.copytree(state.data, tmp_path / "data")
    with broker(data=tmp_path / "data") as running:
        yield running


def test_the_second_run_of_kafka_wrote_under_a_higher_epoch(carried: dict[str, Carried]) -> None:
    """Otherwise the tests below would not show what they are for."""
    first, second = (max(record.leader_epoch for record in carried[name].told.records) for name in ("killed", "closed"))
    assert second > first


def test_topics_have_their_ids_and_all_their_records(state: Carried, moldau: BrokerInThread) -> None:
    told = ask(moldau.bootstrap)
    assert told.topic_ids == state.told.topic_ids
    assert told.watermarks == state.told.watermarks
    assert told.records == state.told.records
    assert told.committed == state.told.committed
    assert {str(record.value)[-7:-1] for record in told.committed} == {"commit"}


def test_everything_is_still_so_after_a_restart(state: Carried, moldau: BrokerInThread) -> None:
    moldau.restart()
    assert ask(moldau.bootstrap) == state.told


def test_new_records_go_on_at_the_end_and_no_leader_epoch_goes_back(state: Carried, moldau: BrokerInThread) -> None:
    for (topic, partition), (_, end) in state.told.watermarks.items():
        assert send(moldau.bootstrap, topic, "new", partition=partition, idempotent=False) == [end]
        records = read_from(moldau.bootstrap, topic, partition, 0)
        assert records[-1].value == b"new"
        epochs = [record.leader_epoch for record in records]
        assert epochs == sorted(epochs), f"{topic}-{partition}"


def test_a_consumer_goes_on_from_where_it_was_in_kafka(state: Carried, moldau: BrokerInThread) -> None:
    """With the leader epoch that it remembers, which is checked (KIP-320)."""
    last = [record for record in state.told.records if record.topic == "spread" and record.partition == 0][-1]
    send(moldau.bootstrap, "spread", "new", idempotent=False)
    [found] = read_from(moldau.bootstrap, "spread", 0, last.offset + 1, leader_epoch=last.leader_epoch)
    assert (found.offset, found.value) == (last.offset + 1, b"new")


def test_new_producers_are_not_taken_for_those_that_kafka_knew(state: Carried, moldau: BrokerInThread) -> None:
    """A producer id that Kafka gave away comes with sequence numbers: to give it again loses or refuses records."""
    end = state.told.watermarks["coded", 0][1]
    for number in range(12):
        assert send(moldau.bootstrap, "coded", "from a new producer") == [end + number]


def test_a_compacted_topic_is_not_deleted_by_age(state: Carried, tmp_path: Path) -> None:
    """Its records are older than the default retention; that it is compacted was in Kafka's metadata log."""
    shutil.copytree(state.data, tmp_path / "data")
    with broker({"log.retention.check.interval.ms": "20"}, tmp_path / "data") as moldau:
        send(moldau.bootstrap, "aged", "old", timestamp=time_ns() // 1_000_000 - TEN_DAYS_MS)
        wait_until(lambda: watermark(moldau.bootstrap, "aged") == (1, 1))  # a retention pass has been
        assert watermark(moldau.bootstrap, "compacted") == state.told.watermarks["compacted", 0]


def watermark(bootstrap: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    consumer.close()
    return low, high


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < deadline


def test_kafkas_tool_reads_what_was_appended(state: Carried, moldau: BrokerInThread, kafka_classpath: str) -> None:
    for codec in CODECS:
        send(moldau.bootstrap, "coded", *["appended"] * 3, codec=codec, idempotent=False)
    end = state.told.watermarks["coded", 0][1] + 3 * len(CODECS)
    moldau.stop()
    directory = Path(moldau.data) / "coded-0"
    tools = JavaTools(kafka_classpath)
    said = tools.dump(sorted(directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.M)] == list(range(end))
    assert said.count("payload: appended") == 3 * len(CODECS)
    assert "isvalid: false" not in said
    verified = tools.dump(sorted(directory.glob("*index")), "--verify-index-only")
    assert [line for line in verified.splitlines() if not re.match(r"Dumping |.* is empty\.$", line)] == []
