"""Consumer groups in a scrape: offsets, lag, members, status, and a lag in seconds that is true."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.broker.metrics import groups
from moldau.core.ids import TopicPartition as Partition
from moldau.log.timestamps import timestamp_at
from moldau.testing import broker
from moldau.testing.brokers import BrokerInThread
from tests.broker.metrics.scraping import ANY_PORT, Samples, scrape, value

DEADLINE_S = 20.0
HOUR_MS = 3_600_000
RECORDS = 100
TOLERANCE_S = 0.1
CODECS = ("none", "lz4", "zstd")


@pytest.fixture(scope="module")
def observed() -> Iterator[BrokerInThread]:
    with broker(ANY_PORT) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        made = admin.create_topics([NewTopic(codec, 2, 1) for codec in CODECS])
        for future in made.values():
            future.result(DEADLINE_S)
        yield running


def produce(observed: BrokerInThread, topic: str, timestamps: list[int]) -> None:
    """All records in one batch."""
    producer = Producer({"bootstrap.servers": observed.bootstrap, "linger.ms": 200, "compression.type": topic})
    for timestamp in timestamps:
        producer.produce(topic, b"x" * 20, partition=0, timestamp=timestamp)
    assert producer.flush(DEADLINE_S) == 0


def commit(observed: BrokerInThread, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def of(samples: Samples, name: str, group: str, topic: str) -> float:
    return value(samples, name, consumergroup=group, topic=topic, partition="0")


@pytest.mark.parametrize("codec", CODECS)
def test_the_lag_in_seconds_is_the_age_of_the_record_at_the_committed_offset(
    observed: BrokerInThread, codec: str
) -> None:
    """The records came at once and are minutes apart: whoever interpolates between offsets that it has seen takes all
    of them for new."""
    began_ms = int(time.time() * 1000) - HOUR_MS
    timestamps = [began_ms + number * 20_000 for number in range(RECORDS)]
    produce(observed, codec, timestamps)
    for offset in (0, 37, RECORDS - 1):
        commit(observed, "exact", codec, offset)
        least_s = time.time() - timestamps[offset] / 1000
        lag_s = of(scrape(observed), "moldau_group_lag_seconds", "exact", codec)
        most_s = time.time() - timestamps[offset] / 1000
        assert least_s - TOLERANCE_S <= lag_s <= most_s + TOLERANCE_S
    commit(observed, "exact", codec, RECORDS)
    samples = scrape(observed)
    assert of(samples, "moldau_group_lag_seconds", "exact", codec) == 0
    assert of(samples, "kafka_consumergroup_lag", "exact", codec) == 0
    assert of(samples, "kafka_consumergroup_current_offset", "exact", codec) == RECORDS


class Interpolating:
    """An exporter that sees only offsets: it remembers the end of a partition at each of its polls, and takes it that
    the records between two polls came at an even pace."""

    def __init__(self) -> None:
        self._polls: list[tuple[float, int]] = []

    def polled(self, at_s: float, end: int) -> None:
        self._polls.append((at_s, end))

    def lag_s(self, now_s: float, offset: int) -> float:
        for (before_s, before), (after_s, after) in pairwise(self._polls):
            if before <= offset < after:
                return now_s - (before_s + (offset - before) / (after - before) * (after_s - before_s))
        raise AssertionError(f"no poll has seen {offset}")


def test_the_lag_in_seconds_is_true_where_one_that_is_interpolated_is_not(observed: BrokerInThread) -> None:
    """A record a minute, fifty of them within a second, and again one a minute: who polls every thirty seconds and
    draws a line between two polls is wrong by many seconds in and beside the burst."""
    began_s = float(int(time.time()) - 3600)
    times_s = [began_s + 60 * number for number in range(5)]
    times_s += [began_s + 5 * 60 + 25 + number / 50 for number in range(50)]
    times_s += [began_s + 6 * 60 + 10 + 60 * number for number in range(5)]
    exporter = Interpolating()
    for number in range(1, 60):
        at_s = began_s - 15 + 30 * number
        exporter.polled(at_s, sum(each < at_s for each in times_s))
    topic = "zstd"
    first = end_of(observed, topic)
    produce(observed, topic, [int(each * 1000) for each in times_s])
    errors_s = []
    for offset in (1, 4, 5, 30, 54, 57):
        commit(observed, "bursts", topic, first + offset)
        truth_s = time.time() - times_s[offset]
        told_s = of(scrape(observed), "moldau_group_lag_seconds", "bursts", topic)
        took_s = time.time() - times_s[offset] - truth_s
        assert truth_s - TOLERANCE_S <= told_s <= truth_s + took_s + TOLERANCE_S
        errors_s.append(abs(exporter.lag_s(time.time(), offset) - (time.time() - times_s[offset])))
    assert max(errors_s) > 100 * TOLERANCE_S
    assert sum(error_s > TOLERANCE_S for error_s in errors_s) >= 4


def end_of(observed: BrokerInThread, topic: str) -> int:
    return int(value(scrape(observed), "kafka_topic_partition_current_offset", topic=topic, partition="0"))


def test_lag_members_and_status_have_the_names_of_kafka_exporter(observed: BrokerInThread) -> None:
    produce(observed, "none", [int(time.time() * 1000)] * 10)
    commit(observed, "late", "none", 4)
    samples = scrape(observed)
    end = value(samples, "kafka_topic_partition_current_offset", topic="none", partition="0")
    assert of(samples, "kafka_consumergroup_lag", "late", "none") == end - 4
    assert value(samples, "kafka_consumergroup_lag_sum", consumergroup="late", topic="none") == end - 4
    assert value(samples, "kafka_consumergroup_current_offset_sum", consumergroup="late", topic="none") == 4
    assert value(samples, "kafka_consumergroup_members", consumergroup="late") == 0
    assert value(samples, "moldau_group_status", consumergroup="late") == 0
    assert value(samples, "moldau_groups") >= 1


def test_members_are_counted(observed: BrokerInThread) -> None:
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": "joined"})
    consumer.subscribe(["none"])
    end = time.monotonic() + DEADLINE_S
    while not consumer.assignment() and time.monotonic() < end:
        consumer.poll(0.05)
    assert value(scrape(observed), "kafka_consumergroup_members", consumergroup="joined") == 1
    consumer.close()


def test_a_group_with_a_hostile_name_spoils_nothing(observed: BrokerInThread) -> None:
    produce(observed, "none", [int(time.time() * 1000)])
    for name in ('"} 1\nforged{x="', "back\\slash", "ü\u2028\r", "g" * 5_000):
        commit(observed, name, "none", 0)
    samples = scrape(observed)
    assert "forged" not in samples
    assert len({labels for labels in samples["moldau_group_status"] if labels}) >= 4


def test_groups_beyond_the_limit_are_left_out_and_counted(
    observed: BrokerInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(observed, "one-too-many", "none", 0)
    monkeypatch.setattr(groups, "PARTITIONS_MAX", 0)
    samples = scrape(observed)
    assert value(samples, "moldau_groups_left_out") >= 1
    assert "kafka_consumergroup_lag" not in samples


def test_groups_that_have_committed_nothing_have_the_same_limit(
    observed: BrokerInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client makes as many of them as it likes."""
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": "without-commits"})
    consumer.subscribe(["none"])
    end = time.monotonic() + 20
    while not consumer.assignment() and time.monotonic() < end:
        consumer.poll(0.05)
    monkeypatch.setattr(groups, "PARTITIONS_MAX", 0)
    samples = scrape(observed)
    consumer.close()
    assert value(samples, "moldau_groups_left_out") == value(samples, "moldau_groups")
    assert "kafka_consumergroup_members" not in samples


def test_a_scrape_without_time_for_a_timestamp_says_so(
    observed: BrokerInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(observed, "none", [int(time.time() * 1000)] * 2)
    commit(observed, "without-time", "none", 1)
    monkeypatch.setattr(groups, "LOOK_UPS_S_MAX", -1.0)
    samples = scrape(observed)
    assert value(samples, "moldau_group_lag_late_total") >= 1
    assert of(samples, "kafka_consumergroup_lag", "without-time", "none") > 0


def test_a_commit_behind_the_end_has_no_lag(observed: BrokerInThread) -> None:
    commit(observed, "ahead", "none", 1_000_000)
    assert of(scrape(observed), "kafka_consumergroup_lag", "ahead", "none") == 0


def test_behind_the_end_of_a_log_there_is_no_timestamp(observed: BrokerInThread) -> None:
    replica = observed.broker.parts.replicas.replica(*Partition("none", 1))
    assert replica is not None
    assert timestamp_at(replica.log, 0) is None


def test_an_open_transaction_is_told_with_the_producer_that_holds_back(observed: BrokerInThread) -> None:
    producer = Producer({"bootstrap.servers": observed.bootstrap, "transactional.id": "open"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("lz4", b"held", partition=1)
    assert producer.flush(DEADLINE_S) == 0
    samples = scrape(observed)
    assert value(samples, "kafka_cluster_partition_laststableoffsetlag", topic="lz4", partition="1") == 1
    (blocked,) = samples["moldau_last_stable_offset_blocked"]
    assert int(dict(blocked)["producer_id"]) >= 0
    producer.abort_transaction(DEADLINE_S)
    assert "moldau_last_stable_offset_blocked" not in scrape(observed)
