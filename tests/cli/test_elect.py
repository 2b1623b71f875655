"""`moldau elect`, on Apache Kafka 4.3.1 and on three brokers of ours."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.testing import ClusterInThread, cluster
from tests.cli.conftest import Ended, Tool
from tests.cli.test_reassign import leaders


def test_an_election_that_is_not_needed_is_said_to_be_so(either_tool: Tool, topic: str, tmp_path: Path) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    told = either_tool.ok("elect", "--election-type", "preferred", "--topic", topic, "--partition", "1")
    assert told == f"Valid replica already elected for partitions {topic}-1\n"
    assert either_tool.ok("elect", "preferred", "--all-topic-partitions") == "No election is needed.\n"
    assert either_tool.ok("elect", "UNCLEAN", "--all-topic-partitions", "--dry-run") == "No election is needed.\n"
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0}]}))
    told = either_tool.ok("elect", "unclean", "--path-to-json-file", str(file), "--json")
    assert json.loads(told) == [{"topic": topic, "partition": 0, "elected": False, "error": "ELECTION_NOT_NEEDED"}]


def test_mistakes_are_named(either_tool: Tool, topic: str, tmp_path: Path) -> None:
    either_tool.ok("topics", "create", topic)
    assert "no partition" in either_tool.error("elect", "preferred", "--topic", topic, "--partition", "7")
    assert "does not exist" in either_tool.error("elect", "preferred", "--topic", "nope-nope", "--partition", "0")
    file = tmp_path / "partitions.json"
    for text in ("", "{}", '{"partitions": []}', '{"partitions": [{"topic": "a", "partition": "0"}]}'):
        file.write_text(text)
        assert str(file) in either_tool.error("elect", "preferred", "--path-to-json-file", str(file))


def test_preferred_and_unclean_leaders_are_elected(
    run_tool: Callable[[list[str], bytes], Ended],
) -> None:
    with cluster(3, {"auto.leader.rebalance.enable": "false"}) as own:
        tool = Tool(own.bootstrap, run_tool)
        tool.ok("topics", "create", "led", "--replica-assignment", "1:3")
        own.stop(1)
        assert own.wait_for_leader("led", other_than=1) == 3
        own.start(1)
        own.wait_for_isr("led", {1, 3})
        tool = Tool(own.bootstrap, run_tool)
        assert (
            tool.ok("elect", "preferred", "--all-topic-partitions", "--dry-run")
            == "Would elect 1 for led-0, led by 3.\n"
        )
        told = tool.ok("elect", "preferred", "--all-topic-partitions")
        assert told == "Successfully completed leader election (PREFERRED) for partitions led-0\n"
        assert own.wait_for_leader("led", other_than=3) == 1
        _lose_all_in_sync(own)
        tool = Tool(own.bootstrap, run_tool)
        assert leaders(tool, "led") == [None]
        told = tool.ok("elect", "unclean", "--topic", "led", "--partition", "0")
        assert told == "Successfully completed leader election (UNCLEAN) for partitions led-0\n"
        assert own.wait_for_leader("led") == 3
        own.start(1)


def _lose_all_in_sync(own: ClusterInThread) -> None:
    """Leave only replica 3 alive, which is not in sync."""
    own.kill(3)
    own.wait_for_isr("led", {1})
    own.kill(1)
    own.wait(lambda image: image.topics["led"].partitions[0].leader == -1)
    own.start(3)
    own.wait(lambda image: 3 in image.brokers)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["preferred"],
        ["best", "--all-topic-partitions"],
        ["preferred", "--election-type", "unclean", "--all-topic-partitions"],
        ["preferred", "--topic", "t"],
        ["preferred", "--partition", "0"],
        ["preferred", "--topic", "t", "--partition", "x"],
        ["preferred", "--all-topic-partitions", "--topic", "t", "--partition", "0"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["elect", *arguments], b"")
    assert ended.value.code == 2
