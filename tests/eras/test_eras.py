"""The introductions' programs and commands, by Kafka's own classes of their time."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    ConfigResource,
)

from tests.eras.conftest import Brokers, only_all_eras
from tests.eras.era import FIRST, LAST, Era

CODECS = ("none", "gzip", "snappy")
COUNT = 300
WAIT_S = 120.0


def messages(codec: str) -> list[str]:
    return [f"{codec} {number} of organisation {number % 7}" for number in range(COUNT)]


def read_all(bootstrap: str, topic: str, partitions: Iterable[int]) -> list[str]:
    """Every value in these partitions, by a client of today."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions]
    consumer.assign(places)
    found: list[str] = []
    ended = 0
    while ended < len(places):
        message = consumer.poll(20)
        assert message is not None, f"{topic} cannot be read to its end"
        if message.error():
            ended += 1
        else:
            found.append((message.value() or b"").decode())
    consumer.close()
    return found


def produce_today(bootstrap: str, topic: str, lines: list[str], codec: str) -> None:
    """Send lines with keys, headers and in large batches."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100})
    for number, line in enumerate(lines):
        producer.produce(topic, line.encode(), b"organisation %d" % (number % 7), headers={"number": b"%d" % number})
    assert producer.flush(30) == 0


def describe(bootstrap: str, topic: str) -> dict[int, tuple[int, list[int]]]:
    """Leader and replicas of each partition."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics[topic]
    return {index: (each.leader, list(each.replicas)) for index, each in found.partitions.items()}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"


def test_what_the_old_producer_sends_the_old_consumers_read(brokers: Brokers, era: Era, topic: str) -> None:
    assert era.create(topic, 1, 3).code == 0
    sent: list[str] = []
    for codec in CODECS:
        era.produce(topic, messages(codec), codec)
        sent += messages(codec)
    assert sorted(read_all(brokers.bootstrap, topic, [0])) == sorted(sent)
    assert sorted(era.simple_consume(topic, 0).lines("of organisation")) == sorted(sent)
    assert sorted(era.consume(topic, f"group-{topic}", len(sent)).lines("of organisation")) == sorted(sent)


@only_all_eras
def test_the_old_consumers_read_what_producers_of_all_times_sent(brokers: Brokers, era: Era, topic: str) -> None:
    assert era.create(topic, 4, 3).code == 0
    sent: list[str] = []
    for number, codec in enumerate(CODECS * 2):
        sender = (brokers.era(FIRST), era, brokers.era(LAST))[number % 3]
        lines = [f"{number} {line}" for line in messages(codec)]
        sender.produce(topic, lines, codec)
        produce_today(brokers.bootstrap, topic, [f"today {line}" for line in lines], codec)
        sent += lines + [f"today {line}" for line in lines]
    for fetch_size in (4_000, 10_000):  # much less than a batch of today's producer
        found = [line for index in range(4) for line in era.simple_consume(topic, index, fetch_size).lines("of org")]
        assert sorted(found) == sorted(sent)
    assert sorted(era.consume(topic, f"group-{topic}", len(sent)).lines("of organisation")) == sorted(sent)


def test_partitions_are_added_and_every_record_stays(brokers: Brokers, era: Era, topic: str) -> None:
    assert era.create(topic, 2, 3).code == 0
    era.produce(topic, messages("none"))
    assert "ucce" in era.add_partitions(topic, 2, 5).output  # "adding partitions succeeded!", in any spelling of case
    assert sorted(read_all(brokers.bootstrap, topic, range(5))) == sorted(messages("none"))
    era.produce(topic, messages("gzip"), "gzip")
    both = sorted(messages("none") + messages("gzip"))
    assert sorted(read_all(brokers.bootstrap, topic, range(5))) == both
    for broker in brokers.all:
        broker.restart()
    assert sorted(read_all(brokers.bootstrap, topic, range(5))) == both


def test_a_topic_that_is_deleted_is_gone_and_its_name_is_free(brokers: Brokers, era: Era, topic: str) -> None:
    assert era.create(topic, 1, 2).code == 0
    era.produce(topic, messages("none"))
    assert era.delete(topic).code == 0
    wait_until(lambda: topic not in era.listed())
    assert era.create(topic, 1, 2).code == 0
    assert read_all(brokers.bootstrap, topic, [0]) == []


def test_partitions_move_and_verify_says_so(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    era = brokers.era(LAST)
    assert era.create(topic, 2, 2).code == 0
    era.produce(topic, messages("none"))
    before = describe(brokers.bootstrap, topic)
    target = {index: [({0, 1, 2} - set(replicas)).pop(), replicas[0]] for index, (_, replicas) in before.items()}
    plan = tmp_path / "plan.json"
    entries = [{"topic": topic, "partition": index, "replicas": ids} for index, ids in target.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    command = ("kafka.admin.ReassignPartitionsCommand", "--reassignment-json-file", plan)
    assert "uccessfully started" in era.by_zookeeper(*command, "--execute", "--throttle", 100_000_000).output
    wait_until(lambda: era.by_zookeeper(*command, "--verify").output.count("completed successfully") == 2)
    assert {index: replicas for index, (_, replicas) in describe(brokers.bootstrap, topic).items()} == target
    assert sorted(read_all(brokers.bootstrap, topic, range(2))) == sorted(messages("none"))


def test_preferred_replicas_lead_again(brokers: Brokers, topic: str, tmp_path: Path) -> None:
    era = brokers.era(LAST)
    assert era.create(topic, 3, 3).code == 0
    preferred = {index: replicas[0] for index, (_, replicas) in describe(brokers.bootstrap, topic).items()}
    brokers.all[1].restart()
    wait_until(lambda: all(leader != -1 for leader, _ in describe(brokers.bootstrap, topic).values()))
    partitions = tmp_path / "partitions.json"
    partitions.write_text(json.dumps({"partitions": [{"topic": topic, "partition": index} for index in preferred]}))
    command = ("kafka.admin.PreferredReplicaLeaderElectionCommand", "--path-to-json-file", partitions)

    def elected() -> bool:
        era.by_zookeeper(*command)
        return {index: leader for index, (leader, _) in describe(brokers.bootstrap, topic).items()} == preferred

    wait_until(elected)


def test_a_topics_settings_are_those_that_the_tool_wrote(brokers: Brokers, topic: str) -> None:
    era = brokers.era(LAST)
    assert era.create(topic, 1, 1).code == 0
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = era.by_zookeeper("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=77777")
    assert altered.code == 0, altered.output
    assert "retention.ms=77777" in era.by_zookeeper("kafka.admin.ConfigCommand", "--describe", *entity).output
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    wait_until(lambda: admin.describe_configs([resource])[resource].result()["retention.ms"].value == "77777")
