"""Apache Kafka 4.3.1's tools for consumer groups against a broker of ours."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic

from moldau.testing import BrokerInThread, broker
from tests.tools.java_tools import JavaTools

TIMEOUT_S = 20.0
COUNT = 10
STEP_MS = 12 * 3_600_000
NOW_MS = time_ns() // 1_000_000
BEGIN_MS = NOW_MS - COUNT * STEP_MS
"""The record at offset n is n steps younger than this. A step is longer than the tests take, which began at NOW_MS."""
GROUPS = "consumer.group.ConsumerGroupCommand"
CONSOLE = "consumer.ConsoleConsumer"


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    """One broker for all; each test has groups of its own."""
    with broker({"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}) as started:
        for topic in ("orders", "other"):
            _fill(started.bootstrap, topic)
        yield started


@pytest.fixture
def tools(kafka_classpath: str, running: BrokerInThread) -> JavaTools:
    return JavaTools(kafka_classpath, running.bootstrap)


def _fill(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(topic, 2, 1)]).values()
    created.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        for partition in (0, 1):
            at_ms = BEGIN_MS + number * STEP_MS
            producer.produce(topic, f"{partition}/{number}", partition=partition, timestamp=at_ms)
    assert producer.flush(TIMEOUT_S) == 0


def commit(bootstrap: str, group: str, offsets: Mapping[int, int], topic: str = "orders") -> None:
    """As a tool does for a group that nobody is in."""
    partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
    done.result(TIMEOUT_S)


def committed(bootstrap: str, group: str, topic: str = "orders") -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [found] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    partitions = found.result(TIMEOUT_S).topic_partitions or []
    return {each.partition: each.offset for each in partitions if each.topic == topic and each.offset >= 0}


@contextmanager
def member(bootstrap: str, group: str, protocol: str = "classic", topic: str = "orders") -> Iterator[None]:
    """A consumer that is in the group, has all partitions, and has committed their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"member-of-{group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(2 * COUNT, TIMEOUT_S)) == 2 * COUNT
    consumer.commit(asynchronous=False)
    leaving = threading.Event()

    def stay() -> None:
        while not leaving.is_set():
            consumer.poll(0.05)

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        yield
    finally:
        leaving.set()
        staying.join()
        consumer.close()


def table(output: str) -> list[dict[str, str]]:
    """The rows of a table that a tool printed, by the names of its columns."""
    lines = [line for line in output.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line.split()[0] in ("GROUP", "PROTOCOL"))
    names = lines[start].split()
    return [
        dict(zip(names, line.split(), strict=False)) for line in lines[start + 1 :] if not line.startswith("GROUP ")
    ]


def cells(rows: list[dict[str, str]], *names: str) -> set[tuple[str, ...]]:
    return {tuple(row.get(name, "") for name in names) for row in rows}


# --- list and describe


def test_groups_are_listed_by_state_and_type(tools: JavaTools) -> None:
    commit(tools.bootstrap, "listed-simple", {0: 3})
    with member(tools.bootstrap, "listed-classic"), member(tools.bootstrap, "listed-consumer", "consumer"):

        def listed(*arguments: str) -> str:
            return tools.tool(GROUPS, "--list", *arguments)

        assert {"listed-simple", "listed-classic", "listed-consumer"} <= set(listed().split())
        assert {
            ("listed-simple", "Classic", "Empty"),
            ("listed-classic", "Classic", "Stable"),
            ("listed-consumer", "Consumer", "Stable"),
        } <= cells(table(listed("--state", "--type")), "GROUP", "TYPE", "STATE")
        assert cells(table(listed("--state", "stable")), "GROUP") == {("listed-classic",), ("listed-consumer",)}
        assert cells(table(listed("--type", "consumer")), "GROUP") == {("listed-consumer",)}
        assert ("listed-simple",) in cells(table(listed("--type", "classic", "--state", "empty")), "GROUP")
        every = tools.tool("GroupsCommand", "--list")
        assert ("listed-consumer", "Consumer", "consumer") in cells(table(every), "GROUP", "TYPE", "PROTOCOL")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_in_every_view(protocol: str, tools: JavaTools) -> None:
    group = f"described-{protocol}"
    with member(tools.bootstrap, group, protocol):

        def described(*arguments: str) -> list[dict[str, str]]:
            return table(tools.tool(GROUPS, "--describe", "--group", group, *arguments))

        offsets = described()
        columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
        assert cells(offsets, *columns) == {("orders", each, "10", "10", "0", f"member-of-{group}") for each in "01"}
        assert all(row["HOST"] == "/127.0.0.1" for row in offsets)
        assert cells(described("--offsets", "--verbose"), "PARTITION", "CURRENT-OFFSET") == {("0", "10"), ("1", "10")}
        [only] = described("--members")
        assert (only["CLIENT-ID"], only["#PARTITIONS"]) == (f"member-of-{group}", "2")
        assert "orders(0,1)" in tools.tool(GROUPS, "--describe", "--group", group, "--members", "--verbose").replace(
            "orders:0,1", "orders(0,1)"
        )
        [state] = described("--state")
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        [state] = described("--state", "--verbose")
        assert state["STATE"] == "Stable"
    gone = tools.tool(GROUPS, "--describe", "--group", group)
    assert "has no active members" in gone
    assert cells(table(gone), "CURRENT-OFFSET", "CONSUMER-ID") == {("10", "-")}


def test_a_group_that_does_not_exist_is_reported(tools: JavaTools) -> None:
    code, output = tools.run(
        f"org.apache.kafka.tools.{GROUPS}", "--bootstrap-server", tools.bootstrap, "--describe", "--group", "nobody"
    )
    assert code == 0
    assert "GroupIdNotFoundException" in output


# --- reset-offsets


def _as_datetime(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


HALF_STEP_MS = STEP_MS // 2
RESETS: dict[str, tuple[list[str], int]] = {
    "to the earliest": (["--to-earliest"], 0),
    "to the latest": (["--to-latest"], COUNT),
    "to an offset": (["--to-offset", "4"], 4),
    "by a shift": (["--shift-by", "-2"], 3),
    "to where it is": (["--to-current"], 5),
    "to a time": (["--to-datetime", _as_datetime(BEGIN_MS + 3 * STEP_MS - HALF_STEP_MS)], 3),
    "by a duration": (["--by-duration", "PT42H"], 7),
}


@pytest.mark.parametrize("mode", RESETS)
def test_offsets_are_reset(mode: str, tools: JavaTools) -> None:
    arguments, expected = RESETS[mode]
    group = f"reset {mode}".replace(" ", "-")
    commit(tools.bootstrap, group, {0: 5, 1: 5})
    command = (GROUPS, "--reset-offsets", "--group", group, "--topic", "orders:0", *arguments)
    done = tools.tool(*command, "--execute")
    assert cells(table(done), "TOPIC", "PARTITION", "NEW-OFFSET") == {("orders", "0", str(expected))}
    assert committed(tools.bootstrap, group) == {0: expected, 1: 5}


def test_a_dry_run_resets_nothing(tools: JavaTools) -> None:
    commit(tools.bootstrap, "planned", {0: 5, 1: 6})
    planned = tools.tool(GROUPS, "--reset-offsets", "--group", "planned", "--all-topics", "--to-earliest", "--dry-run")
    assert cells(table(planned), "TOPIC", "PARTITION", "NEW-OFFSET") == {("orders", "0", "0"), ("orders", "1", "0")}
    assert committed(tools.bootstrap, "planned") == {0: 5, 1: 6}


def test_offsets_are_reset_from_a_file_that_the_tool_exported(tools: JavaTools, tmp_path: Path) -> None:
    commit(tools.bootstrap, "exported", {0: 2, 1: 7})
    command = (GROUPS, "--reset-offsets", "--group", "exported")
    exported = tools.tool(*command, "--all-topics", "--to-current", "--export", "--dry-run")
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(line for line in exported.splitlines() if line.startswith("orders,")))
    commit(tools.bootstrap, "exported", {0: 9, 1: 9})
    tools.tool(*command, "--from-file", plan, "--execute")
    assert committed(tools.bootstrap, "exported") == {0: 2, 1: 7}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_in_use_is_neither_reset_nor_deleted(protocol: str, tools: JavaTools) -> None:
    group = f"used-{protocol}"
    command = ("--bootstrap-server", tools.bootstrap, "--group", group)
    with member(tools.bootstrap, group, protocol):
        reset = ("--reset-offsets", "--topic", "orders", "--to-earliest", "--execute")
        assert "inactive" in tools.run(f"org.apache.kafka.tools.{GROUPS}", *command, *reset).output
        deletion = tools.run(f"org.apache.kafka.tools.{GROUPS}", *command, "--delete").output
        assert "not empty" in deletion or "NonEmpty" in deletion, deletion
        gone = tools.run(f"org.apache.kafka.tools.{GROUPS}", *command, "--delete-offsets", "--topic", "orders").output
        assert gone.count("GroupSubscribedToTopicException") == 2, gone
        assert committed(tools.bootstrap, group) == {0: 10, 1: 10}


# --- delete


def test_a_group_is_deleted_with_its_offsets(tools: JavaTools) -> None:
    commit(tools.bootstrap, "going", {0: 5})
    assert "successful" in tools.tool(GROUPS, "--delete", "--group", "going")
    assert "going" not in tools.tool(GROUPS, "--list").split()
    assert committed(tools.bootstrap, "going") == {}


def test_offsets_of_a_topic_that_nobody_reads_are_deleted(tools: JavaTools) -> None:
    commit(tools.bootstrap, "forgetting", {0: 5}, "other")
    with member(tools.bootstrap, "forgetting"):
        deleted = tools.tool(GROUPS, "--delete-offsets", "--group", "forgetting", "--topic", "other:0")
        assert cells(_status(deleted), "TOPIC", "PARTITION", "STATUS") == {("other", "0", "Successful")}
        assert committed(tools.bootstrap, "forgetting", "other") == {}
        assert committed(tools.bootstrap, "forgetting") == {0: 10, 1: 10}


def _status(output: str) -> list[dict[str, str]]:
    lines = [line.split() for line in output.splitlines() if line.strip()]
    start = next(number for number, words in enumerate(lines) if words[0] == "TOPIC")
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


# --- consuming


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_goes_on_where_it_stopped(protocol: str, tools: JavaTools) -> None:
    command = ("--topic", "orders", "--group", f"console-{protocol}", "--from-beginning")
    settings = ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000")
    first = tools.tool(CONSOLE, *command, *settings, "--max-messages", 7).splitlines()
    rest = tools.tool(CONSOLE, *command, *settings, "--max-messages", 2 * COUNT - 7).splitlines()
    read = [line for line in first + rest if line[:2] in ("0/", "1/")]
    assert sorted(read) == sorted(f"{partition}/{number}" for partition in (0, 1) for number in range(COUNT))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_reads_commits_and_leaves(protocol: str, tools: JavaTools) -> None:
    where = ("--topic", "orders", "--group-id", f"verified-{protocol}", "--group-protocol", protocol)
    output = tools.tool("VerifiableConsumer", *where, "--max-messages", 2 * COUNT)
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 2 * COUNT
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert "shutdown_complete" in [event["name"] for event in events]
    assert committed(tools.bootstrap, f"verified-{protocol}") == {0: COUNT, 1: COUNT}


# --- the topic of the offsets


def test_kafkas_own_formatters_read_the_topic_of_the_offsets(tools: JavaTools) -> None:
    commit(tools.bootstrap, "formatted", {0: 6})
    with member(tools.bootstrap, "formatted-classic"), member(tools.bootstrap, "formatted-consumer", "consumer"):
        pass
    offsets = _formatted(tools, "OffsetsMessageFormatter")
    found = [(each["key"]["data"], each["value"]["data"]["offset"]) for each in offsets if each["value"]]
    assert ({"group": "formatted", "topic": "orders", "partition": 0}, 6) in found
    metadata = _formatted(tools, "GroupMetadataMessageFormatter")
    states = [each["value"]["data"] for each in metadata if each["key"]["data"] == {"group": "formatted-classic"}]
    assert {"range"} <= {state["protocol"] for state in states}
    assert states[-1]["members"] == []


def _formatted(tools: JavaTools, formatter: str) -> list[dict[str, dict[str, dict[str, object]]]]:
    """Until nothing comes any more: the tool ends with an error then, and has printed everything. On a busy machine the
    first record may take longer than the others: then it is given more time."""
    where = ("--bootstrap-server", tools.bootstrap, "--topic", "__consumer_offsets", "--from-beginning")
    form = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}")
    for timeout_ms in (3_000, 30_000):
        command = (*where, *form, "--timeout-ms", timeout_ms)
        output = tools.run(f"org.apache.kafka.tools.{CONSOLE}", *command).output
        if '{"key"' in output:
            break
    decoder, found = json.JSONDecoder(), []
    position = output.find('{"key"')
    while position >= 0:  # it writes one after the other, without a line's end
        message, end = decoder.raw_decode(output, position)
        found.append(message)
        position = output.find('{"key"', end)
    return found


def test_dump_log_segments_decodes_the_topic_of_the_offsets(kafka_classpath: str, tmp_path: Path) -> None:
    with broker({"offsets.topic.num.partitions": "1"}, tmp_path) as other:
        _fill(other.bootstrap, "orders")
        commit(other.bootstrap, "dumped", {0: 6})
        with member(other.bootstrap, "dumped-consumer", "consumer"):
            pass
    files = [tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"]
    dumped = JavaTools(kafka_classpath).dump(files, "--offsets-decoder")
    assert '{"group":"dumped","topic":"orders","partition":0}' in dumped
    members = [line for line in dumped.splitlines() if "dumped-consumer" in line]
    for fact in ('"subscribedTopicNames":["orders"]', '"assignmentEpoch":', '"memberEpoch":', '"partitions":[0,1]'):
        assert any(fact in line for line in members), f"{fact} is not in {members}"
