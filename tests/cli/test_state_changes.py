"""`moldau state-changes merge`, compared with StateChangeLogMerger of Kafka 0.10.2."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.clients.java_client import TOOLS
from tests.tools.java_tools import JavaTools

ONE = """[2026-11-18 17:00:00,000] INFO Controller 1 epoch 1 changed partition [visits,0]: leader 1 (s)
[2026-11-18 17:00:02,500] INFO Broker 1 became leader for partition [visits,0] in leader epoch 0 (state.change.logger)
    at a line of a trace
[2026-11-18 17:00:09,000] INFO Broker 1 became leader for partition [orders, 3] in leader epoch 4 (s)
"""
TWO = """[2026-11-18 17:00:01,000] INFO Broker 2 became follower of broker 1 for partition [visits,0] in epoch 0 (s)
[2026-11-18 17:00:03,000] INFO nothing about a partition
[2026-11-18 17:00:04,000] INFO Broker 2 became follower of broker 1 for partition [visits,1] in leader epoch 0 (s)
"""
CASES = {
    "all": [],
    "a topic": ["--topic", "visits"],
    "partitions": ["--topic", "visits", "--partitions", "1,2"],
    "a time": ["--start-time", "2026-11-18 17:00:01,000", "--end-time", "2026-11-18 17:00:04,000"],
}

Run = Callable[[list[str], bytes], Ended]


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    for name, text in (("state-change.1", ONE), ("state-change.2", TWO)):
        (tmp_path / name).write_text(text)
    return [str(tmp_path / "state-change.1"), str(tmp_path / "state-change.2")]


@pytest.mark.foreign
@pytest.mark.parametrize("case", ["all", "a time"])
def test_the_merged_history_is_that_of_kafkas_tool(run_tool: Run, logs: list[str], case: str) -> None:
    arguments = ["--logs", ",".join(logs), *CASES[case]]
    theirs = JavaTools(f"{TOOLS}/kafka-0.10.2.0/*").succeed("kafka.tools.StateChangeLogMerger", *arguments)
    ours = run_tool(["state-changes", "merge", *arguments], b"")
    assert ours.code == 0
    assert ours.output.splitlines() == [line for line in theirs.splitlines() if line.startswith("[2026")]
    assert ours.output


@pytest.mark.parametrize(("case", "count"), [("all", 5), ("a topic", 4), ("partitions", 1), ("a time", 3)])
def test_lines_are_chosen_by_topic_partition_and_time(run_tool: Run, logs: list[str], case: str, count: int) -> None:
    ended = run_tool(["state-changes", "merge", *logs, *CASES[case], "--json"], b"")
    rows = [json.loads(line) for line in ended.output.splitlines()]
    assert len(rows) == count
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


def test_files_are_found_by_an_expression_and_times_by_their_beginning(run_tool: Run, logs: list[str]) -> None:
    pattern = logs[0].replace("state-change.1", "state-change.*")
    arguments = ["--logs-regex", pattern, "--start-time", "2026-11-18 17:00:04", "--end-time", "2026-11-18"]
    assert run_tool(["state-changes", "merge", *arguments], b"").output.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name the logs"),
        (["nowhere.log"], "cannot read nowhere.log"),
        (["x", "--partitions", "1"], "--partitions needs --topic"),
        (["x", "--topic", "t", "--partitions", "1,1"], "more than once"),
        (["x", "--topic", "t", "--partitions", "one"], "0,1,2"),
        (["x", "--start-time", "yesterday"], "is no time"),
        (["--logs-regex", "./(["], "is no regular expression"),
    ],
)
def test_mistakes_are_one_line(run_tool: Run, arguments: list[str], complaint: str) -> None:
    ended = run_tool(["state-changes", "merge", *arguments], b"")
    assert (ended.code in (1, 2), ended.errors.count("\n")) == (True, 1)
    assert complaint in ended.errors
