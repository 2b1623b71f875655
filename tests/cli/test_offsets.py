"""`moldau offsets`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.conftest import COUNT, Ended, Tool
from tests.cli.test_groups import commit, committed, table
from tests.tools.java_tools import JavaTools
from tests.transaction_servers import new_topic

TIMEOUT_S = 30.0


@pytest.fixture
def tool(either_tool: Tool) -> Tool:
    return either_tool


def asked(tool: Tool, *arguments: str) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("offsets", *arguments, "--json"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {0: 10, 1: 10}),
        (["--time", "-1"], {0: 10, 1: 10}),
        (["--time", "earliest", "--partitions", "1"], {1: 0}),
        (["--time", "-3"], {0: 9, 1: 9}),
        (["--time", "0"], {0: 0, 1: 0}),
        (["--time", "9999999999999"], {}),
    ],
)
def test_offsets_of_logs_are_told(tool: Tool, filled: str, arguments: list[str], expected: dict[int, int]) -> None:
    told = tool.ok("offsets", "get", filled, *arguments)
    assert told == "".join(f"{filled}:{index}:{offset}\n" for index, offset in expected.items())


def test_kafkas_tool_tells_the_same(either_bootstrap: str, kafka_classpath: str, tool: Tool, filled: str) -> None:
    line = ("--topic-partitions", f"{filled}:0-1,{filled}:1", "--time", "-2")
    theirs = JavaTools(kafka_classpath, either_bootstrap).tool("GetOffsetShell", *line)
    assert tool.ok("offsets", "get", *line) == theirs == f"{filled}:0:0\n{filled}:1:0\n"


def test_partitions_that_are_not_there_are_an_error(tool: Tool, filled: str) -> None:
    assert "no topic matches" in tool.error("offsets", "get", "nope")
    assert "no partition" in tool.error("offsets", "get", filled, "--partitions", "9")
    assert "0,1,2" in tool.error("offsets", "get", filled, "--partitions", "x")
    assert "TOPIC:0-2" in tool.error("offsets", "get", "--topic-partitions", f"{filled}:x")
    assert "regular expression" in tool.error("offsets", "get", "[")
    everything = asked(tool, "get", "--exclude-internal-topics")
    assert "__consumer_offsets" not in {row["topic"] for row in everything}


@pytest.mark.parametrize("form", ["json", "csv", "zookeeper"])
def test_exported_offsets_are_imported(
    either_bootstrap: str, tool: Tool, filled: str, group: str, tmp_path: Path, form: str
) -> None:
    commit(either_bootstrap, group, filled, {0: 5, 1: 6})
    file = tmp_path / "offsets"
    tool.ok("offsets", "export", group, "--format", form, "--file", str(file))
    commit(either_bootstrap, group, filled, {0: 1, 1: 1})
    rows = table(tool.ok("offsets", "import", str(file), "--group", group, "--dry-run"))
    assert [(row["NEW-OFFSET"], row["CURRENT-OFFSET"]) for row in rows] == [("5", "1"), ("6", "1")]
    assert committed(tool, group) == {0: 1, 1: 1}
    tool.ok("offsets", "import", str(file), "--group", group)
    assert committed(tool, group) == {0: 5, 1: 6}


def test_a_mistyped_group_does_not_empty_the_file_of_an_earlier_export(
    either_bootstrap: str, tool: Tool, filled: str, group: str, tmp_path: Path
) -> None:
    commit(either_bootstrap, group, filled, {0: 5})
    file = tmp_path / "offsets"
    tool.ok("offsets", "export", group, "--file", str(file))
    kept = file.read_text()
    assert "nothing to export" in tool.error("offsets", "export", f"{group}\033[2J", "--file", str(file))
    assert file.read_text() == kept
    said = tool("offsets", "export", group, "nobody\033[2J").errors
    assert said == "group nobody\N{REPLACEMENT CHARACTER}[2J has committed no offsets\n"


def test_lines_of_the_zookeeper_era_are_read(tool: Tool, filled: str, group: str) -> None:
    lines = f"/consumers/{group}/offsets/{filled}/1-0:3\n/consumers/{group}/offsets/{filled}/1:4\n"
    tool.ok("offsets", "import", "-", stdin=lines.encode())
    assert committed(tool, group) == {0: 3, 1: 4}


def test_nothing_is_imported_where_one_offset_is_wrong(tool: Tool, filled: str, group: str) -> None:
    for line in (f"{group},{filled},0,{COUNT + 1}", f"{group},{filled},7,0", f"{group},nope,0,0"):
        text = f"{group},{filled},1,2\n{line}\n"
        assert "nothing was imported" in tool.error("offsets", "import", "-", stdin=text.encode())
    for text in ("a,b", "a,b,-1", '{"offsets": 1}', "/brokers/ids/1:2", '{"offsets": [{"topic": "a"}]}', ""):
        assert tool.error("offsets", "import", "-", "--group", group, stdin=text.encode()).startswith("error: ")
    assert "name one with --group" in tool.error("offsets", "import", "-", stdin=f"{filled},0,1".encode())
    assert group not in tool.ok("groups", "list").splitlines()


def test_offsets_outside_of_their_logs_are_found(either_bootstrap: str, tool: Tool, filled: str, group: str) -> None:
    commit(either_bootstrap, group, filled, {0: 3})
    assert tool.ok("offsets", "verify", group) == "1 committed offsets of 1 groups are inside their logs.\n"
    topic = new_topic(either_bootstrap)
    tool.ok("produce", "--topic", topic, stdin=b"a\nb\nc\n")
    commit(either_bootstrap, group, topic, {0: 1})
    admin = AdminClient({"bootstrap.servers": either_bootstrap})  # kept: its answers die with it
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 3)]).values()
    deleted.result(TIMEOUT_S)
    commit(either_bootstrap, group, filled, {1: 99})
    ended = tool("offsets", "verify", group)
    assert ended.code == 1
    problems = {line.split()[1]: line for line in ended.output.splitlines()[1:]}
    assert set(problems) == {topic, filled}
    assert "2 records before it are gone" in problems[topic]
    assert "89 past the end" in problems[filled]
    ended = tool("offsets", "verify", group, "--json")
    assert [row["problem"] is None for row in json.loads(ended.output) if row["topic"] == filled] == [True, False]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["put"],
        ["get", "t", "--time", "tomorrow"],
        ["get", "t", "--time", "-4"],
        ["export", "g", "--format", "xml"],
        ["import"],
        ["verify", "--tpoic", "x"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["offsets", *arguments], b"")
    assert ended.value.code == 2
