"""`moldau records delete`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended, Tool


@pytest.fixture
def filled(either_tool: Tool, topic: str) -> str:
    """A topic with two partitions, of which the first has five records and the other two."""
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    either_tool.ok("produce", topic, "--partition", "0", stdin=b"a\nb\nc\nd\ne\n")
    either_tool.ok("produce", topic, "--partition", "1", stdin=b"f\ng\n")
    return topic


def left(tool: Tool, topic: str) -> str:
    return "".join(sorted(tool.ok("consume", topic, "--from-beginning", "--no-follow").splitlines()))


def test_records_before_an_offset_are_deleted(either_tool: Tool, filled: str) -> None:
    delete = ("records", "delete", filled, "--partition", "0", "--before-offset", "3")
    assert either_tool.ok(*delete, "--dry-run") == f"Would delete 3 records of {filled}-0, before 3\n"
    assert left(either_tool, filled) == "abcdefg"
    done = "Executing records delete operation\nRecords delete operation completed:\n"
    assert either_tool.ok(*delete) == f"{done}partition: {filled}-0\tlow_watermark: 3\n"
    assert left(either_tool, filled) == "defg"


def test_all_that_is_older_than_a_time_is_deleted(either_tool: Tool, filled: str) -> None:
    rows = json.loads(either_tool.ok("records", "delete", filled, "--before-time", "now", "--yes", "--json"))
    assert [(row["partition"], row["lowWatermark"]) for row in rows] == [(0, 5), (1, 2)]
    assert left(either_tool, filled) == ""


def test_kafkas_file_of_offsets_is_understood(either_tool: Tool, filled: str, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets.json"
    partitions = [{"topic": filled, "partition": 0, "offset": 4}, {"topic": filled, "partition": 1, "offset": -1}]
    offsets.write_text(json.dumps({"partitions": partitions, "version": 1}))
    said = either_tool.ok("records", "--offset-json-file", str(offsets))
    assert f"partition: {filled}-0\tlow_watermark: 4\n" in said
    assert left(either_tool, filled) == "e"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("nope", "is not JSON"),
        ("[]", 'no list "partitions"'),
        ('{"partitions": [], "version": 2}', "version 2"),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "is not of the form"),
        ('{"partitions": [5]}', "is not of the form"),
        ('{"partitions": [{"topic": "no-such-topic", "partition": 0, "offset": 1}]}', "does not exist"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tool: Tool, tmp_path: Path, content: str, reason: str) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_text(content)
    assert reason in tool.error("records", "delete", "--offset-json-file", str(offsets))


def test_what_is_not_there_is_named(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    assert "ends before offset 0" in tool.error("records", "delete", topic, "--before-offset", "9")
    assert "has no partition 4" in tool.error("records", "delete", topic, "--partition", "4", "--before-offset", "0")
    assert "say one of" in tool.error("records", "delete", topic)
    assert "say which records" in tool.error("records", "delete", "--before-offset", "1")
    assert "cannot read" in tool.error("records", "delete", "--offset-json-file", "/no/such")


def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended]) -> None:
    for arguments in (["remove"], ["delete", "t", "--before-offset", "-2"], ["delete", "t", "--before", "2"]):
        with pytest.raises(SystemExit) as ended:
            run_tool(["records", *arguments], b"")
        assert ended.value.code == 2
