"""Apache Kafka 4.3.1's tools for clusters against three brokers of ours."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.cluster.image import ClusterImage, PartitionImage
from moldau.testing import ClusterInThread, cluster
from moldau.testing.processes import ClusterOfProcesses, processes
from tests.tools.java_tools import JavaTools
from tests.tools.running_tools import RunningTool

REASSIGN = "reassign.ReassignPartitionsCommand"
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[ClusterInThread]:
    """One cluster for all but those who kill brokers; each test has topics of its own."""
    with cluster(3, {"auto.leader.rebalance.enable": "false"}) as started:
        yield started


@pytest.fixture
def tools(kafka_classpath: str, running: ClusterInThread) -> JavaTools:
    return JavaTools(kafka_classpath, running.bootstrap)


def create(tools: JavaTools, topic: str, *assignment: str, **configs: str) -> None:
    """With the replicas of each partition as the tool takes them: `1:2`."""
    settings = [word for name, value in configs.items() for word in ("--config", f"{name.replace('_', '.')}={value}")]
    tools.tool("TopicCommand", "--create", "--topic", topic, "--replica-assignment", ",".join(assignment), *settings)


def partition_of(image: ClusterImage, topic: str, index: int = 0) -> PartitionImage:
    return image.topics[topic].partitions[index]


def fill(bootstrap: str, topic: str, count: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(count):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def plan(directory: Path, topic: str, *replicas: list[int]) -> Path:
    file = directory / "plan.json"
    parts = [{"topic": topic, "partition": at, "replicas": each} for at, each in enumerate(replicas)]
    file.write_text(json.dumps({"version": 1, "partitions": parts}))
    return file


# ReassignPartitionsCommand


def test_a_partition_moves_to_other_brokers_with_all_its_records(
    tools: JavaTools, running: ClusterInThread, tmp_path: Path
) -> None:
    create(tools, "moved", "1:2", "2:3")
    fill(tools.bootstrap, "moved", 500, 1000)
    file = plan(tmp_path, "moved", [3, 1], [3, 1])
    assert "Successfully started" in tools.tool(REASSIGN, "--reassignment-json-file", file, "--execute")
    image = running.wait(
        lambda image: all(set(p.isr) == set(p.replicas) == {1, 3} for p in image.topics["moved"].partitions)
    )
    assert partition_of(image, "moved").replicas == (3, 1)
    assert "is completed" in tools.tool(REASSIGN, "--reassignment-json-file", file, "--verify")
    read = tools.tool("GetOffsetShell", "--topic-partitions", "moved:0")
    assert "moved:0:500" in read


def test_a_throttle_holds_a_move_back_and_goes_with_it(
    tools: JavaTools, running: ClusterInThread, tmp_path: Path
) -> None:
    create(tools, "heavy", "1:2")
    fill(tools.bootstrap, "heavy", 3000, 1000)
    file = plan(tmp_path, "heavy", [3, 2])
    started = tools.tool(REASSIGN, "--reassignment-json-file", file, "--execute", "--throttle", 20_000)
    assert "throttle limit was set to 20000 B/s" in started
    # 3 MB at 20 kB/s last minutes, even after the first ten seconds' worth at once.
    assert re.search(r"heavy-0: replicas: .*adding: 3\..*removing: 1", tools.tool(REASSIGN, "--list"))
    assert partition_of(running.brokers[1].image, "heavy").adding == (3,)
    more = (REASSIGN, "--reassignment-json-file", file, "--execute", "--additional", "--throttle", 500_000_000)
    tools.tool(*more)
    running.wait(lambda image: partition_of(image, "heavy").replicas == (3, 2), TIMEOUT_S)
    verified = tools.tool(REASSIGN, "--reassignment-json-file", file, "--verify")
    assert "is completed" in verified
    assert "Clearing broker-level throttles" in verified
    assert "Clearing topic-level throttles" in verified
    settings = tools.tool("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", 3)
    assert "throttled.rate" not in settings
    assert "throttled.replicas" not in tools.tool("TopicCommand", "--describe", "--topic", "heavy")


def test_a_move_is_cancelled_and_the_old_replicas_stay(
    tools: JavaTools, running: ClusterInThread, tmp_path: Path
) -> None:
    create(tools, "kept", "1:2")
    fill(tools.bootstrap, "kept", 2000, 1000)
    file = plan(tmp_path, "kept", [3, 2])
    tools.tool(REASSIGN, "--reassignment-json-file", file, "--execute", "--throttle", 10_000)
    assert "Successfully cancelled" in tools.tool(REASSIGN, "--reassignment-json-file", file, "--cancel")
    image = running.wait(lambda image: not partition_of(image, "kept").adding)
    assert set(partition_of(image, "kept").replicas) == {1, 2}
    assert "No partition reassignments found" in tools.tool(REASSIGN, "--list")


def test_a_plan_is_generated_for_fewer_brokers(tools: JavaTools, tmp_path: Path) -> None:
    create(tools, "planned", "1:2", "2:3", "3:1")
    file = tmp_path / "topics.json"
    file.write_text(json.dumps({"version": 1, "topics": [{"topic": "planned"}]}))
    output = tools.tool(REASSIGN, "--topics-to-move-json-file", file, "--broker-list", "1,2", "--generate")
    proposed = json.loads(output.rpartition("Proposed partition reassignment configuration")[2])
    assert all(set(part["replicas"]) == {1, 2} for part in proposed["partitions"])


def test_an_unknown_broker_is_refused(tools: JavaTools, tmp_path: Path) -> None:
    create(tools, "stays", "1:2")
    refusal = tools.refused(REASSIGN, "--reassignment-json-file", plan(tmp_path, "stays", [1, 9]), "--execute")
    assert "9" in refusal


# LeaderElectionCommand


def test_preferred_leaders_come_back_on_demand(kafka_classpath: str) -> None:
    with cluster(3, {"auto.leader.rebalance.enable": "false"}) as own:
        tools = JavaTools(kafka_classpath, own.bootstrap)
        create(tools, "led", "1:2:3", "2:3:1")
        own.stop(1)
        assert partition_of(own.wait(lambda image: partition_of(image, "led").leader != 1), "led").leader == 2
        own.start(1)
        own.wait_for_isr("led", {1, 2, 3})
        output = tools.tool("LeaderElectionCommand", "--election-type", "preferred", "--topic", "led", "--partition", 0)
        assert "Successfully completed leader election (PREFERRED) for partitions led-0" in output
        assert own.wait_for_leader("led", other_than=2) == 1
        again = tools.tool("LeaderElectionCommand", "--election-type", "preferred", "--topic", "led", "--partition", 1)
        assert "already" in again or "Valid replica already elected" in again


def test_an_unclean_election_is_done_where_it_is_asked_for(kafka_classpath: str) -> None:
    with cluster(3) as own:
        tools = JavaTools(kafka_classpath, own.bootstrap)
        create(tools, "risky", "1:2")
        own.kill(2)
        own.wait_for_isr("risky", {1})
        own.kill(1)
        own.wait(lambda image: partition_of(image, "risky").leader == -1)
        own.start(2)
        own.wait(lambda image: 2 in image.brokers)
        assert partition_of(own.brokers[3].image, "risky").leader == -1
        tools.bootstrap = own.bootstrap
        tools.tool("LeaderElectionCommand", "--election-type", "unclean", "--topic", "risky", "--partition", 0)
        assert own.wait_for_leader("risky") == 2


# TopicCommand, ConfigCommand


def test_added_partitions_have_replicas_on_all_brokers(tools: JavaTools, running: ClusterInThread) -> None:
    tools.tool("TopicCommand", "--create", "--topic", "grown", "--partitions", 2, "--replication-factor", 3)
    tools.tool("TopicCommand", "--alter", "--topic", "grown", "--partitions", 5)
    image = running.wait(lambda image: len(image.topics["grown"].partitions) == 5)
    assert {partition.leader for partition in image.topics["grown"].partitions} == {1, 2, 3}
    running.wait(lambda image: all(set(p.isr) == {1, 2, 3} for p in image.topics["grown"].partitions))
    producer = Producer({"bootstrap.servers": tools.bootstrap, "acks": "all"})
    for index in range(5):
        producer.produce("grown", b"x", partition=index)
    assert producer.flush(TIMEOUT_S) == 0


def test_replicas_out_of_sync_are_listed(kafka_classpath: str) -> None:
    with cluster(3) as own:
        tools = JavaTools(kafka_classpath, own.bootstrap)
        create(tools, "under", "1:2:3", min_insync_replicas="3")
        assert tools.tool("TopicCommand", "--describe", "--under-replicated-partitions") == ""
        own.kill(3)
        own.wait_for_isr("under", {1, 2})
        for option in ("--under-replicated-partitions", "--under-min-isr-partitions"):
            assert "Topic: under\tPartition: 0" in tools.tool("TopicCommand", "--describe", option)


def test_a_brokers_setting_is_its_own_and_a_default_is_everybodys(tools: JavaTools) -> None:
    def describe(number: int) -> str:
        return tools.tool("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", number)

    whom = ("--alter", "--entity-type", "brokers")
    tools.tool("ConfigCommand", *whom, "--entity-name", 2, "--add-config", "log.retention.ms=123456")
    assert "log.retention.ms=123456" in describe(2)
    assert "log.retention.ms=123456" not in describe(1)
    tools.tool("ConfigCommand", *whom, "--entity-default", "--add-config", "log.segment.bytes=7654321")
    for number in (1, 2, 3):
        everything = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", number)
        assert "log.segment.bytes=7654321" in tools.tool("ConfigCommand", *everything)
    tools.tool("ConfigCommand", *whom, "--entity-default", "--delete-config", "log.segment.bytes")
    tools.tool("ConfigCommand", *whom, "--entity-name", 2, "--delete-config", "log.retention.ms")
    assert "log.retention.ms=123456" not in describe(2)


# VerifiableProducer, VerifiableConsumer


def test_a_rolling_restart_is_noticed_by_nobody(kafka_classpath: str, tmp_path: Path) -> None:
    with processes(tmp_path / "cluster", 3, {"offsets.topic.num.partitions": "3"}) as three:
        tools = JavaTools(kafka_classpath, three.bootstrap)
        create(tools, "verified", "1:2:3", "2:3:1", "3:1:2", min_insync_replicas="2")
        where = ("--bootstrap-server", three.bootstrap, "--topic", "verified")
        retrying = tmp_path / "producer.properties"  # by itself the tool counts each first failure
        retrying.write_text("retries=2147483647\nenable.idempotence=true\n")
        producer = RunningTool(
            kafka_classpath,
            "org.apache.kafka.tools.VerifiableProducer",
            *where,
            *("--throughput", 300, "--acks", -1, "--command-config", retrying),
        )
        consumer = RunningTool(
            kafka_classpath,
            "org.apache.kafka.tools.VerifiableConsumer",
            *where,
            *("--group-id", "verifying", "--reset-policy", "earliest", "--verbose"),
        )
        with producer, consumer:
            consumer.wait(lambda lines: any('"record_data"' in line for line in lines), TIMEOUT_S)
            roll(three, tools)
            sent = events(producer.stop())
            acknowledged = [event["value"] for event in sent if event["name"] == "producer_send_success"]
            assert [event for event in sent if event["name"] == "producer_send_error"] == []
            assert len(acknowledged) > 0

            read = consumer.wait(lambda lines: set(acknowledged) <= values_read(lines), TIMEOUT_S)
        assert set(acknowledged) <= values_read(read)
        assert three.stop() == {1: 0, 2: 0, 3: 0}


def roll(three: ClusterOfProcesses, tools: JavaTools) -> None:
    """Restart one broker after the other, each once all replicas are in sync."""
    for number in three.brokers:
        assert three[number].terminate() == 0
        three[number].start()
        wait_for(lambda: tools.tool("TopicCommand", "--describe", "--under-replicated-partitions") == "")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


def events(lines: list[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in lines if line.startswith("{")]


def values_read(lines: list[str]) -> set[str]:
    return {event["value"] for event in events(lines) if event["name"] == "record_data"}
