"""`moldau groups`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.__main__ import main
from tests.cli.conftest import COUNT, STEP_MS, Ended, Tool
from tests.cli.test_topics import Terminal
from tests.tools.java_tools import JavaTools
from tests.transaction_servers import new_topic, until

TIMEOUT_S = 30.0
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")


@pytest.fixture
def tool(either_tool: Tool) -> Tool:
    return either_tool


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets as a client does that is in no group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def is_committed() -> bool:  # the first coordinator of a cluster is not ready at once, and says so by partition
        [done] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]).values()
        return all(each.error is None for each in done.result(TIMEOUT_S).topic_partitions)

    until(is_committed)


def committed(tool: Tool, group: str) -> dict[int, int]:
    rows = json.loads(tool("groups", "describe", group, "--json").output)
    return {row["partition"]: row["currentOffset"] for row in rows if row["currentOffset"] is not None}


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> Iterator[None]:
    """A consumer that is in the group, and has read and committed everything."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < 2 * COUNT:
        read += len(consumer.consume(2 * COUNT - read, TIMEOUT_S))
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


def asked(tool: Tool, *arguments: str) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("groups", *arguments, "--json"))


def table(output: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    heading, *rows = (line for line in output.splitlines() if line.strip())
    names = heading.replace("COORDINATOR (ID)", "COORDINATOR").split()
    return [dict(zip(names, row.split(), strict=False)) for row in rows]


# list, describe, members


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_listed_described_and_verified(
    either_bootstrap: str, tool: Tool, filled: str, group: str, protocol: str
) -> None:
    with member(either_bootstrap, group, filled, protocol):
        assert group in tool.ok("groups", "list").splitlines()
        (listed,) = [row for row in asked(tool, "list") if row["group"] == group]
        assert (listed["type"], listed["state"]) == (protocol.capitalize(), "Stable")
        rows = table(tool.ok("groups", "describe", group))
        assert [tuple(row[name] for name in OFFSETS) for row in rows] == [
            (group, filled, "0", "10", "10", "0"),
            (group, filled, "1", "10", "10", "0"),
        ]
        assert {row["CLIENT-ID"] for row in rows} == {f"client-of-{group}"}
        (told,) = table(tool.ok("groups", "members", group, "--verbose"))
        assert (told["#PARTITIONS"], told["CURRENT-ASSIGNMENT"]) == ("2", f"{filled}:0,1")
        assert (told["TARGET-ASSIGNMENT"] == f"{filled}:0,1") is (protocol == "consumer")
        (state,) = asked(tool, "describe", group, "--state", "--verbose")
        assert (state["state"], state["members"]) == ("Stable", 1)
        assert (state["groupEpoch"] is None) is (protocol == "classic")
        verified = tool.ok("groups", "verify", group)
        assert verified == f"Group {group}: 2 partitions of 1 topics, each owned by one of 1 members.\n"
        for action in ("--to-earliest", "--to-latest"):
            refused = tool.error("groups", "reset", group, "--topic", filled, action)
            assert f"the group '{group}' is inactive, but the current state is Stable" in refused
        assert "not empty" in tool.error("groups", "delete", group)
        denied = tool("groups", "delete-offsets", group, "--topic", filled)
        assert denied.code == 1
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in denied.output


def test_groups_are_listed_by_state_and_type(either_bootstrap: str, tool: Tool, filled: str, group: str) -> None:
    commit(either_bootstrap, group, filled, {0: 3})
    found = table(tool.ok("groups", "--list", "--state", "empty", "--type", "Classic"))
    assert {"GROUP": group, "TYPE": "Classic", "STATE": "Empty"} in found
    assert group not in tool("groups", "list", "--state", "Stable").output
    assert "GROUP" in tool.ok("groups", "list", "--state")
    assert "Stable" in tool.error("groups", "list", "--state", "nope")
    assert group in tool.ok("groups", "--list", "--group-type", "classic", "--consumer", "--protocol", "consumer")
    assert "kafka-share-groups.sh" in tool.error("groups", "--list", "--share")
    assert "no consumers" in tool.error("groups", "--list", "--protocol", "connect")


def test_a_group_without_members_is_said_to_be_so(either_bootstrap: str, tool: Tool, filled: str, group: str) -> None:
    commit(either_bootstrap, group, filled, {0: 3})
    ended = tool("groups", "--describe", "--group", group)
    assert ended.errors == f"Consumer group '{group}' has no active members.\n"
    (row,) = table(ended.output)
    assert (row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) == ("3", "7", "-")
    verified = tool("groups", "verify", group)
    assert verified.code == 1
    assert "no members" in verified.output


def test_a_group_that_does_not_exist_is_an_error(tool: Tool, group: str) -> None:
    for action in ("describe", "members", "delete", "verify", "lag"):
        assert group in tool.error("groups", action, group)
    assert "name a group" in tool.error("groups", "describe")


# lag


def test_lag_is_told_in_records_and_in_time(either_bootstrap: str, tool: Tool, filled: str, group: str) -> None:
    commit(either_bootstrap, group, filled, {0: 3, 1: 10})
    behind, done = asked(tool, "lag", group)
    assert (behind["lag"], done["lag"], done["timeLagSeconds"]) == (7, 0, 0)
    # The record at offset 3 is seven hours old, and the tests began less than an hour ago.
    assert 7 * 3600 <= behind["timeLagSeconds"] < 8 * 3600
    (summary,) = asked(tool, "lag", group, "--summary")
    assert (summary["partitions"], summary["lag"]) == (2, 7)
    assert summary["timeLagSeconds"] >= behind["timeLagSeconds"]
    assert asked(tool, "lag", group, "--no-time")[0]["timeLagSeconds"] is None


def test_lag_of_a_group_whose_next_record_is_gone_is_told_by_the_first_that_is_left(
    either_bootstrap: str, tool: Tool, group: str
) -> None:
    topic = new_topic(either_bootstrap)
    producer = Producer({"bootstrap.servers": either_bootstrap})
    now_ms = time.time_ns() // 1_000_000
    for hours in (5, 4, 3, 2):
        producer.produce(topic, b"x", partition=0, timestamp=now_ms - hours * STEP_MS)
    assert producer.flush(TIMEOUT_S) == 0
    commit(either_bootstrap, group, topic, {0: 0})
    admin = AdminClient({"bootstrap.servers": either_bootstrap})  # kept: its answers die with it
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    deleted.result(TIMEOUT_S)
    (row,) = asked(tool, "lag", group)
    assert 3 * 3600 <= row["timeLagSeconds"] < 4 * 3600


# reset


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-offset", "4"], {0: 4, 1: 4}),
        (["--to-offset", "400"], {0: 10, 1: 10}),
        (["--shift-by", "-2"], {0: 3, 1: 4}),
        (["--shift-by", "-200"], {0: 0, 1: 0}),
        (["--to-current"], {0: 5, 1: 6}),
        (["--by-duration", "PT3H30M"], {0: 7, 1: 7}),
        (["--to-datetime", "2001-01-01T00:00:00.000"], {0: 0, 1: 0}),
        (["--to-datetime", "2101-01-01T00:00:00+01:00"], {0: 10, 1: 10}),
    ],
)
def test_offsets_are_reset_to(
    either_bootstrap: str, tool: Tool, filled: str, group: str, where: list[str], expected: dict[int, int]
) -> None:
    commit(either_bootstrap, group, filled, {0: 5, 1: 6})
    shown = tool("groups", "--reset-offsets", "--group", group, "--topic", filled, *where)
    assert "--execute" in shown.errors
    assert {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in table(shown.output)} == expected
    assert committed(tool, group) == {0: 5, 1: 6}
    tool.ok("groups", "reset", group, "--all-topics", *where, "--execute")
    assert committed(tool, group) == expected


def test_only_the_partitions_that_are_named_are_reset(
    either_bootstrap: str, tool: Tool, filled: str, group: str
) -> None:
    commit(either_bootstrap, group, filled, {0: 5, 1: 6})
    tool.ok("groups", "reset", group, "--topic", f"{filled}:1", "--to-earliest", "--execute")
    assert committed(tool, group) == {0: 5, 1: 0}
    assert "no partition 7" in tool.error("groups", "reset", group, "--topic", f"{filled}:7", "--to-earliest")
    assert "does not exist" in tool.error("groups", "reset", group, "--topic", "nope", "--to-earliest")
    assert "TOPIC:0,1,2" in tool.error("groups", "reset", group, "--topic", f"{filled}:x", "--to-earliest")


def test_a_group_that_was_never_there_gets_offsets(tool: Tool, filled: str, group: str) -> None:
    tool.ok("groups", "reset", group, "--topic", filled, "--to-offset", "2", "--execute")
    assert committed(tool, group) == {0: 2, 1: 2}
    fresh = f"{group}-b"
    assert "could be shifted" in tool.error("groups", "reset", fresh, "--topic", filled, "--shift-by", "1")
    assert "no offsets" in tool.error("groups", "reset", fresh, "--all-topics", "--to-latest")


def test_exported_offsets_are_read_back(
    either_bootstrap: str, tool: Tool, filled: str, group: str, tmp_path: Path
) -> None:
    commit(either_bootstrap, group, filled, {0: 5, 1: 6})
    file = tmp_path / "offsets.csv"
    file.write_text(tool.ok("groups", "reset", group, "--all-topics", "--to-current", "--export", "--dry-run"))
    assert file.read_text() == f"{filled},0,5\n{filled},1,6\n"
    tool.ok("groups", "reset", group, "--all-topics", "--to-latest", "--execute")
    tool.ok("groups", "reset", group, "--from-file", str(file), "--execute")
    assert committed(tool, group) == {0: 5, 1: 6}
    file.write_text(f"{filled},0\n")
    assert "line 1" in tool.error("groups", "reset", group, "--from-file", str(file))
    assert "cannot read" in tool.error("groups", "reset", group, "--from-file", str(tmp_path / "none"))


@pytest.mark.parametrize(("answer", "is_left"), [("n\n", True), ("y\n", False)])
def test_people_are_asked_before_offsets_are_reset(
    either_bootstrap: str,
    tool: Tool,
    filled: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_left: bool,
) -> None:
    commit(either_bootstrap, group, filled, {0: 5})
    line = ["groups", "reset", group, "--all-topics", "--to-earliest", "--execute"]
    with monkeypatch.context() as patched:
        errors = Terminal()
        patched.setattr("sys.stdin", Terminal(answer))
        patched.setattr("sys.stderr", errors)
        main([*line, "--bootstrap-server", either_bootstrap])
    assert f"Set 1 offsets of group {group}? [y/N]" in errors.getvalue()
    tool("groups", "list")
    assert (committed(tool, group) == {0: 5}) is is_left


# delete


def test_a_group_without_members_is_deleted(either_bootstrap: str, tool: Tool, filled: str, group: str) -> None:
    commit(either_bootstrap, group, filled, {0: 5, 1: 6})
    assert tool.ok("groups", "delete", group, "--dry-run") == f"Would delete group {group}.\n"
    rows = table(tool.ok("groups", "--delete-offsets", "--group", group, "--topic", f"{filled}:0"))
    assert rows == [{"TOPIC": filled, "PARTITION": "0", "STATUS": "Successful"}]
    assert committed(tool, group) == {1: 6}
    assert "no offsets of" in tool.error("groups", "delete-offsets", group, "--topic", "nope")
    assert tool.ok("groups", "--delete", "--group", group) == f"Deleted group {group}.\n"
    assert group not in tool.ok("groups", "list").splitlines()


# beside Kafka's own tool


def test_kafkas_tool_says_the_same(
    either_bootstrap: str, kafka_classpath: str, tool: Tool, filled: str, group: str
) -> None:
    commit(either_bootstrap, group, filled, {0: 3})
    with member(either_bootstrap, f"{group}-live", filled, "consumer"):
        kafka = JavaTools(kafka_classpath, either_bootstrap)
        theirs = kafka.tool(
            "consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--group", f"{group}-live"
        )
        ours = tool.ok("groups", "--describe", "--group", group, "--group", f"{group}-live")
    rows = [line.split() for line in theirs.splitlines() if line.startswith(("GROUP", group))]
    unique = [row for number, row in enumerate(rows) if row not in rows[:number]]
    assert sorted(unique) == sorted(line.split() for line in ours.splitlines())


# wrong usage


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["reset", "g", "--topic", "t"],
        ["reset", "g", "--topic", "t", "--to-earliest", "--to-latest"],
        ["reset", "g", "--topic", "t", "--all-topics", "--to-latest"],
        ["reset", "g", "--topic", "t", "--to-offset", "x"],
        ["reset", "g", "--topic", "t", "--to-datetime", "yesterday"],
        ["reset", "g", "--topic", "t", "--by-duration", "1 hour"],
        ["reset", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["describe", "g", "--members", "--state"],
        ["describe", "g", "--membres"],
        ["delete-offsets", "g"],
        ["--list", "--delete", "--group", "g"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["groups", *arguments], b"")
    assert ended.value.code == 2
