"""`moldau replay`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.brokers import BrokerInThread, broker
from tests.cli.conftest import Ended, Tool

BEGIN_MS = 1_700_000_000_000
MANY = 15_000
"""Records of a replay that is killed after its first checkpoint, which comes after a second."""


def fill(tool: Tool, topic: str, count: int = 10, step_ms: int = 1000) -> None:
    """Make a topic of two partitions with records `step_ms` apart."""
    tool.ok("topics", "create", topic, "--partitions", "2")
    records = [
        {"partition": n % 2, "timestamp": BEGIN_MS + step_ms * n, "key": f"k{n}", "value": f"v{n}"}
        for n in range(count)
    ]
    text = "\n".join(map(json.dumps, records)).encode()
    tool.ok("produce", topic, "--format", "records", "--keep-partitions", stdin=text)


def records(tool: Tool, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, by their values."""
    shown = tool.ok(
        "consume", topic, "--from-beginning", "--no-follow", "--json", "--isolation-level", "read_committed"
    )
    return sorted(map(json.loads, shown.splitlines()), key=lambda record: int(record["value"][1:]))


def values(tool: Tool, topic: str) -> list[str]:
    return [record["value"] for record in records(tool, topic)]


def expected(count: int) -> list[str]:
    return [f"v{n}" for n in range(count)]


def test_a_topic_is_sent_to_another_with_its_provenance(either_tool: Tool, topic: str) -> None:
    fill(either_tool, topic)
    again = f"{topic}-again"
    would = either_tool.ok("replay", topic, "--to", again, "--from-time", str(BEGIN_MS + 3000), "--dry-run")
    assert would == f"Would send {topic}-0 from 2, before 5.\nWould send {topic}-1 from 1, before 5.\n"
    assert again not in either_tool.ok("topics", "list").splitlines()
    said = either_tool.ok("replay", topic, "--to", again, "--from-time", str(BEGIN_MS + 3000))
    assert said == f"Replayed 7 records of {topic} to {again}.\n"
    found = records(either_tool, again)
    assert [record["value"] for record in found] == expected(10)[3:]
    assert [record["partition"] for record in found] == [1, 0, 1, 0, 1, 0, 1]
    assert (found[0]["timestamp"], found[0]["key"]) == (BEGIN_MS + 3000, "k3")
    assert found[0]["headers"] == [
        ["moldau.replay.topic", topic],
        ["moldau.replay.partition", "1"],
        ["moldau.replay.offset", "1"],
        ["moldau.replay.timestamp", str(BEGIN_MS + 3000)],
    ]


def test_a_file_in_between_loses_nothing(either_tool: Tool, topic: str, tmp_path: Path) -> None:
    fill(either_tool, topic)
    kept, back = tmp_path / "kept.jsonl", f"{topic}-back"
    either_tool.ok("replay", topic, "--to-file", str(kept))
    assert "exists already" in either_tool.error("replay", topic, "--to-file", str(kept))
    either_tool.ok("topics", "create", back, "--partitions", "2")
    either_tool.ok("replay", "--from-file", str(kept), "--to", back, "--no-provenance")
    assert [{**record, "topic": topic} for record in records(either_tool, back)] == records(either_tool, topic)


def test_another_cluster_gets_each_record_once(either_tool: Tool, topic: str, run_tool: Any) -> None:
    fill(either_tool, topic)
    with broker() as other:
        there = Tool(other.bootstrap, run_tool)
        replay = ("replay", topic, "--to", topic, "--to-bootstrap-server", other.bootstrap)
        for until, sent in (("2", 4), ("4", 4), ("9", 2)):
            once = ("--exactly-once", "--group", "copy", "--until-offset", until)
            said = json.loads(either_tool.ok(*replay, *once, "--json"))
            assert said["records"] == sent
        assert values(there, topic) == expected(10)


@pytest.mark.parametrize("keeping", ["group", "exactly-once", "position-file"])
def test_it_goes_on_where_it_stopped(either_tool: Tool, topic: str, keeping: str, tmp_path: Path) -> None:
    fill(either_tool, topic)
    group = ("--group", f"{topic}-replay")
    kept = {
        "group": group,
        "exactly-once": (*group, "--exactly-once"),
        "position-file": ("--position-file", str(tmp_path / "position")),
    }[keeping]
    replay = ("replay", topic, "--to", f"{topic}-again", *kept)
    either_tool.ok(*replay, "--until-offset", "3")
    assert "4 records" in either_tool.ok(*replay)
    assert "Replayed 0 records" in either_tool.ok(*replay)
    assert values(either_tool, f"{topic}-again") == expected(10)


def test_records_come_at_a_multiple_of_their_own_speed_and_in_their_order(tool: Tool, topic: str) -> None:
    fill(tool, topic, count=8, step_ms=100)
    again = f"{topic}-again"
    tool.ok("topics", "create", again, "--partitions", "1")
    begun = time.monotonic()
    tool.ok("replay", topic, "--to", again, "--speed", "2", "--by-key")
    assert time.monotonic() - begun >= 0.35
    assert tool.ok("consume", again, "--from-beginning", "--no-follow").split() == expected(8)


def test_a_rate_is_held(tool: Tool, topic: str) -> None:
    fill(tool, topic, count=21)
    tool.ok("replay", topic, "--to", f"{topic}-again", "--rate", "100", "--new-timestamps")
    times = [record["timestamp"] for record in records(tool, f"{topic}-again")]
    assert max(times) - min(times) >= 195


class Killed:
    """A replay that is killed (kill -9) as soon as its target holds something, and started again."""

    def __init__(self, bootstrap: str, arguments: list[str]) -> None:
        self._program = [sys.executable, "-m", "moldau", "replay", *arguments, "--bootstrap-server", bootstrap]

    def run(self, has_begun: Callable[[], bool]) -> None:
        process = subprocess.Popen([*self._program, "--rate", "5000", "--follow"], stdout=subprocess.DEVNULL)
        while not has_begun():
            assert process.poll() is None, "it follows the topic, and ended"
        process.kill()
        process.wait()
        subprocess.run(self._program, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("keeping", ["exactly-once", "position-file"])
def test_a_killed_replay_into_a_topic_leaves_nothing_out(
    moldau_broker: BrokerInThread, tool: Tool, topic: str, keeping: str, tmp_path: Path
) -> None:
    fill(tool, topic, MANY)
    again = f"{topic}-again"
    tool.ok("topics", "create", again, "--partitions", "2")
    position = tmp_path / "position"
    kept = ["--position-file", str(position)] if keeping == "position-file" else ["--exactly-once", "--group", again]
    count = ("consume", again, "--from-beginning", "--no-follow", "--count")
    replay = Killed(moldau_broker.bootstrap, [topic, "--to", again, *kept])
    replay.run(lambda: int(tool.ok(*count)) > MANY // 2)
    found = values(tool, again)
    if keeping == "exactly-once":
        assert found == expected(MANY)
    assert sorted(set(found), key=lambda value: int(value[1:])) == expected(MANY)


def test_a_killed_replay_into_a_file_has_each_record_once(
    moldau_broker: BrokerInThread, tool: Tool, topic: str, tmp_path: Path
) -> None:
    fill(tool, topic, MANY)
    kept, position = tmp_path / "kept.jsonl", tmp_path / "position"
    replay = Killed(moldau_broker.bootstrap, [topic, "--to-file", str(kept), "--position-file", str(position)])
    replay.run(lambda: kept.exists() and kept.stat().st_size > 1_000_000)
    found = [json.loads(line)["value"] for line in kept.read_text().splitlines()]
    assert sorted(found, key=lambda value: int(value[1:])) == expected(MANY)


def test_a_wrong_line_stops_with_its_place_and_what_was_before_it_is_kept(
    tool: Tool, topic: str, tmp_path: Path
) -> None:
    source, position = tmp_path / "source.jsonl", tmp_path / "position"
    source.write_text('{"value": "v0"}\n{"value": "v1"}\n{"val')
    replay = ("replay", "--from-file", str(source), "--to", topic, "--position-file", str(position))
    assert "byte 32: not JSON" in tool.error(*replay)
    source.write_text('{"value": "v0"}\n{"value": "v1"}\n{"value": "v2"}\n')
    tool.ok(*replay)
    assert values(tool, topic) == expected(3)


def test_what_cannot_be_replayed_is_said_in_one_line(tool: Tool, topic: str, tmp_path: Path) -> None:
    fill(tool, topic)
    position = tmp_path / "position"
    assert "into itself" in tool.error("replay", topic, "--to", topic)
    assert "does not exist" in tool.error("replay", f"{topic}-not", "--to", "x")
    assert "cannot read /no/such" in tool.error("replay", "--from-file", "/no/such", "--to", topic)
    tool.ok("topics", "create", f"{topic}-small", "--partitions", "1")
    assert "or --by-key" in tool.error("replay", topic, "--to", f"{topic}-small")
    tool.ok("replay", topic, "--to", f"{topic}-a", "--position-file", str(position), "--until-offset", "2")
    said = tool.error("replay", topic, "--to", f"{topic}-b", "--position-file", str(position))
    assert "belongs to another replay" in said
    tool.ok("records", "delete", topic, "--before-offset", "4")
    said = tool.error("replay", topic, "--to", f"{topic}-a", "--position-file", str(position))
    assert f"records 2 to 3 of {topic}-0 are no longer there" in said
    position.write_text("nope")
    said = tool.error("replay", topic, "--to", f"{topic}-a", "--position-file", str(position))
    assert "is not a position file" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["t"],
        ["--to", "t"],
        ["t", "--to", "u", "--to-file", "f"],
        ["t", "--to", "u", "--exactly-once"],
        ["t", "--to", "u", "--speed", "0"],
        ["t", "--to", "u", "--speed", "2", "--rate", "2"],
        ["t", "--to-file", "f", "--group", "g"],
        ["--from-file", "f", "--to-file", "g"],
        ["--from-file", "f", "--to", "t", "--from-time", "1h"],
        ["t", "u", "--to", "v"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["replay", *arguments], b"")
    assert ended.value.code == 2
