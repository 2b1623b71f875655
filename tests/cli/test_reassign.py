"""`moldau reassign`, on Apache Kafka 4.3.1 and on three brokers of ours."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import ClusterInThread, cluster
from tests.cli.conftest import Ended, Tool
from tests.tools.java_tools import JavaTools
from tests.transaction_servers import until

REASSIGN = "reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="session")
def three() -> Iterator[ClusterInThread]:
    """Three brokers that lead what they are told to lead."""
    with cluster(3, {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture
def tool(three: ClusterInThread, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    return Tool(three.bootstrap, run_tool)


def replicas(tool: Tool, topic: str) -> list[list[int]]:
    (told,) = json.loads(tool.ok("topics", "describe", topic, "--json"))
    return [each["replicas"] for each in told["partitions"]]


def leaders(tool: Tool, topic: str) -> list[int]:
    (told,) = json.loads(tool.ok("topics", "describe", topic, "--json"))
    return [each["leader"] for each in told["partitions"]]


def asked(tool: Tool, *arguments: str) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("reassign", *arguments, "--json"))


def plan_file(directory: Path, topic: str, *wanted: list[int]) -> str:
    file = directory / "plan.json"
    parts = [{"topic": topic, "partition": at, "replicas": each} for at, each in enumerate(wanted)]
    file.write_text(json.dumps({"version": 1, "partitions": parts}))
    return str(file)


def test_a_plan_is_made_begun_and_verified(tool: Tool, topic: str, tmp_path: Path) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2,1:2")
    file = str(tmp_path / "plan.json")
    told = tool.ok("reassign", "plan", topic, "--brokers", "2,3", "--file", file)
    assert told.startswith("Current partition replica assignment\n")
    assert json.loads(told.splitlines()[-1]) == json.loads(Path(file).read_text())
    shown = tool.ok("reassign", "execute", file, "--dry-run")
    assert shown.splitlines()[0].split() == ["TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "BYTES-TO-COPY"]
    assert replicas(tool, topic) == [[1, 2], [1, 2]]
    verified = tool("reassign", "verify", file)
    assert verified.code == 1
    assert "but replica set is 1,2 rather than 2,3" in verified.output
    assert "Successfully started" in tool.ok("reassign", "--execute", "--reassignment-json-file", file)
    until(lambda: tool("reassign", "verify", file).code == 0)
    assert replicas(tool, topic) == [[2, 3], [3, 2]]
    assert tool.ok("reassign", "--list") == "No partition reassignments found.\n"


def test_kafkas_tool_takes_our_plan_and_we_take_its(
    three: ClusterInThread, kafka_classpath: str, tool: Tool, topic: str, tmp_path: Path
) -> None:
    kafka = JavaTools(kafka_classpath, three.bootstrap)
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2,2:3")
    ours = tmp_path / "ours.json"
    tool.ok("reassign", "plan", topic, "--brokers", "1,3", "--file", str(ours))
    kafka.tool(REASSIGN, "--execute", "--reassignment-json-file", ours)
    until(lambda: tool("reassign", "verify", str(ours)).code == 0)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    line = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2")
    theirs = tmp_path / "theirs.json"
    theirs.write_text(kafka.tool(REASSIGN, *line).strip().splitlines()[-1])
    tool.ok("reassign", "--execute", "--reassignment-json-file", str(theirs))
    until(lambda: tool("reassign", "verify", str(theirs)).code == 0)
    assert all(set(each) == {1, 2} for each in replicas(tool, topic))
    assert "Proposed" in tool.ok("reassign", *line)


def test_a_throttled_move_is_cancelled_and_the_throttle_goes(tool: Tool, topic: str, tmp_path: Path) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1")
    # The first fetch of a follower is not throttled, and brings 1 MiB; three more at 1 kB/s last long.
    tool.ok("produce", "--topic", topic, stdin=b"".join(b"x" * 1000 + b"\n" for _ in range(4_000)))
    file = plan_file(tmp_path, topic, [3])
    tool.ok("reassign", "execute", file, "--throttle", "1000")
    (moving,) = asked(tool, "list")
    assert (moving["topic"], moving["adding"], moving["removing"]) == (topic, [3], [1])
    assert "is still in progress" in tool("reassign", "verify", file).output
    assert "is being moved" in tool.error("reassign", "plan", topic, "--brokers", "1,2")
    assert "--additional" in tool.error("reassign", "execute", file)
    described = tool.ok("configs", "describe", "topics", topic)
    assert "leader.replication.throttled.replicas=0:1 " in described
    assert "follower.replication.throttled.replicas=0:3 " in described
    until(lambda: "throttled.rate=1000 " in tool.ok("configs", "describe", "brokers", "3"))  # it tells what it knows
    assert "Would cancel" in tool.ok("reassign", "cancel", file, "--dry-run")
    assert f"Successfully cancelled partition reassignments for: {topic}-0" in tool.ok("reassign", "cancel", file)
    assert replicas(tool, topic) == [[1]]
    assert "throttled" not in tool.ok("configs", "describe", "topics", topic)
    until(lambda: "throttled" not in tool.ok("configs", "describe", "brokers", "3"))
    assert "None of the specified" in tool.ok("reassign", "--cancel", "--reassignment-json-file", file)


def test_balance_shows_what_moves_and_moves_it(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", ",".join(["1:2"] * 6))
    planned = tool("reassign", "balance", topic)
    assert "--execute" in planned.errors
    assert replicas(tool, topic) == [[1, 2]] * 6
    tool.ok("reassign", "balance", topic, "--execute")
    until(lambda: asked(tool, "list") == [])
    spread = Counter(broker for each in replicas(tool, topic) for broker in each)
    assert spread == {1: 4, 2: 4, 3: 4}
    assert Counter(each[0] for each in replicas(tool, topic)) == {1: 2, 2: 2, 3: 2}


def test_balance_by_leaders_copies_nothing_and_leaders_change_at_once(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", ",".join(["1:2:3"] * 3))
    rows = asked(tool, "balance", topic, "--by", "leaders", "--execute")
    assert {row["bytes"] for row in rows} == {0}
    until(lambda: Counter(leaders(tool, topic)) == {1: 1, 2: 1, 3: 1})


def _smaller(directory: Path, topic: str) -> str:
    (directory / "smaller").mkdir()
    return plan_file(directory / "smaller", topic, [1])


def test_a_topic_with_one_copy_gets_more_as_the_doctor_says(tool: Tool, topic: str, tmp_path: Path) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1,2")
    told = json.loads(tool("doctor", "--json", "--watch=0").output)
    single = next(each for each in told if each["check"] == "topics-single")
    assert topic in single["subjects"]
    remedy = single["remedy"].replace("plan.json", str(tmp_path / "plan.json"))
    for line in remedy.replace(f"--topic {single['subjects'][0]} ", f"--topic {topic} ").split(", then: "):
        tool.ok(*line.split()[1:])
    until(lambda: [len(each) for each in replicas(tool, topic)] == [3, 3])
    assert [each[0] for each in replicas(tool, topic)] == [1, 2], "nothing that was there has moved"


def test_mistakes_are_named_and_nothing_moves(tool: Tool, topic: str, tmp_path: Path) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2")
    for arguments, words in {
        ("execute", str(tmp_path / "none")): "cannot read",
        ("execute", plan_file(tmp_path, topic, [1, 9])): "no broker 9",
        (
            "execute",
            _smaller(tmp_path, topic),
            "--disallow-replication-factor-change",
        ): "changes the replication factor",
        ("plan", topic, "--brokers", "1,9"): "no broker 9",
        ("plan", topic, "--brokers", "1,1"): "different broker ids",
        ("plan", topic, "--brokers", "1"): "at least 2 brokers",
        ("plan", "nope-nope", "--brokers", "1,2"): "no topic matches",
        ("plan", "--brokers", "1,2"): "say which topics",
        ("balance", topic, "--brokers", "x"): "broker ids",
    }.items():
        assert words in tool.error("reassign", *arguments)
    assert "there is no partition" in tool.error("reassign", "execute", plan_file(tmp_path, "nope-nope", [1]))
    assert replicas(tool, topic) == [[1, 2]]


@pytest.mark.parametrize(
    "arguments",
    [[], ["execute"], ["move"], ["balance", "--by", "luck"], ["execute", "f", "--throttle", "-1"]],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["reassign", *arguments], b"")
    assert ended.value.code == 2


def test_every_action_works_on_either(either_tool: Tool, topic: str, tmp_path: Path) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    (broker,) = {each[0] for each in replicas(either_tool, topic)}
    file = str(tmp_path / "plan.json")
    either_tool.ok("reassign", "plan", topic, "--brokers", str(broker), "--file", file)
    either_tool.ok("reassign", "execute", file, "--throttle", "1000000")
    until(lambda: either_tool("reassign", "verify", file).code == 0)
    until(lambda: "throttled" not in either_tool.ok("configs", "describe", "topics", topic))
    assert "None of the specified" in either_tool.ok("reassign", "cancel", file)
    assert either_tool.ok("reassign", "list") == "No partition reassignments found.\n"
    assert asked(either_tool, "balance", topic) == []
