"""`moldau brokers`, on Apache Kafka 4.3.1 and on three brokers of ours."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.cli.conftest import Ended, Tool
from tests.cli.test_reassign import leaders, replicas, three, tool
from tests.tools.java_tools import JavaTools
from tests.transaction_servers import until

__all__ = ["three", "tool"]


def asked(tool: Tool, *arguments: str) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("brokers", *arguments, "--json"))


def test_brokers_are_listed_and_described_on_either(either_tool: Tool, either_bootstrap: str, topic: str) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "3")
    either_tool.ok("produce", "--topic", topic, stdin=b"hello\n")
    (listed,) = asked(either_tool, "list")
    assert listed["state"] == "alive"
    assert listed["leaders"] == listed["replicas"] >= 3
    (told,) = asked(either_tool, "describe", str(listed["id"]))
    assert told["address"] == listed["address"]
    assert "broker" in told["roles"]
    assert f"\tCluster: {told['clusterId']}" in either_tool.ok("brokers", "describe").splitlines()
    assert told["clusterId"] == AdminClient({"bootstrap.servers": either_bootstrap}).list_topics().cluster_id
    assert told["address"] in told["listeners"]
    assert {"key": 3, "name": "Metadata"}.items() <= told["versions"][3].items()
    (directory,) = told["logDirs"]
    assert directory["replicas"] >= 3
    assert directory["bytes"] > 0
    lines = either_tool.ok("brokers", "describe", "--versions").splitlines()
    assert lines[0].startswith(f"Broker: {listed['id']}\tAddress: {told['address']}\t")
    assert any(line.startswith("\t\tApiVersions(18): 0 to ") for line in lines)


def test_log_directories_are_told_as_kafkas_tool_does(
    either_tool: Tool, either_bootstrap: str, kafka_classpath: str, topic: str
) -> None:
    either_tool.ok("topics", "create", topic, "--partitions", "2")
    either_tool.ok("produce", topic, "--partition", "1", stdin=b"hello\n")
    (broker,) = asked(either_tool, "list")
    line = ("--describe", "--topic-list", topic, "--broker-list", str(broker["id"]))
    theirs = JavaTools(kafka_classpath, either_bootstrap).tool("LogDirsCommand", *line)
    ours = either_tool.ok("brokers", "log-dirs", *line)
    assert ours.splitlines()[:2] == theirs.splitlines()[:2]
    assert _sorted(json.loads(ours.splitlines()[2])) == _sorted(json.loads(theirs.splitlines()[2]))
    (told,) = asked(either_tool, "log-dirs", topic)["brokers"]
    sizes = {row["partition"]: row["size"] for each in told["logDirs"] for row in each["partitions"]}
    assert sizes[f"{topic}-0"] == 0 < sizes[f"{topic}-1"]
    assert f"{topic}-1" in either_tool.ok("brokers", "log-dirs")
    assert "does not exist" in either_tool.error("brokers", "log-dirs", "nope-nope")


def _sorted(told: Any) -> Any:
    for broker in told["brokers"]:
        for each in broker["logDirs"]:
            each["partitions"].sort(key=lambda row: row["partition"])
    return told


def test_a_broker_that_cannot_be_stopped_over_the_wire_is_said_to_be_so(either_tool: Tool) -> None:
    (listed,) = asked(either_tool, "list")
    assert "SIGTERM" in either_tool.error("brokers", "shutdown", str(listed["id"]))
    assert "no broker 77" in either_tool.error("brokers", "shutdown", "77")


def test_the_only_broker_cannot_be_drained(either_tool: Tool, topic: str) -> None:
    either_tool.ok("topics", "create", topic)
    (listed,) = asked(either_tool, "list")
    assert "add a broker" in either_tool.error("brokers", "drain", str(listed["id"]), "--topic", topic)


def test_a_broker_is_drained_of_replicas(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2,2:3,3:1")
    planned = tool("brokers", "drain", "1", "--topic", topic)
    assert "Nothing was moved" in planned.errors
    assert planned.output.count("\n") == 3
    assert replicas(tool, topic) == [[1, 2], [2, 3], [3, 1]]
    tool.ok("brokers", "drain", "1", "--topic", topic, "--execute")
    until(lambda: replicas(tool, topic) == [[3, 2], [2, 3], [3, 2]])


def test_a_broker_is_drained_of_leaderships(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2,2:1,1:3")
    tool.ok("brokers", "drain", "1", "--topic", topic, "--leaders", "--execute")
    until(lambda: leaders(tool, topic) == [2, 2, 3])
    assert replicas(tool, topic) == [[2, 1], [2, 1], [3, 1]]


def test_partitions_that_a_drained_broker_alone_can_lead_are_told(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "2,1")
    ended = tool("brokers", "drain", "1", "--topic", topic, "--leaders", "--execute")
    assert ended.code == 0
    assert f"broker 1 stays the leader of {topic}-1, which no other replica in sync can lead" in ended.errors


def test_a_partition_with_replicas_everywhere_stays_unless_it_may_shrink(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--replica-assignment", "1:2:3")
    drain = ("brokers", "drain", "1", "--topic", topic, "--execute")
    assert "--allow-fewer-replicas" in tool.error(*drain)
    tool.ok(*drain, "--allow-fewer-replicas")
    until(lambda: replicas(tool, topic) == [[2, 3]])


def test_mistakes_are_named(tool: Tool) -> None:
    assert "no broker 77" in tool.error("brokers", "describe", "77")
    assert "no broker 77" in tool.error("brokers", "drain", "77")
    assert "not the id" in tool.error("brokers", "describe", "x")


@pytest.mark.parametrize("arguments", [[], ["drain"], ["shutdown"], ["stop", "1"], ["drain", "1", "--leader"]])
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["brokers", *arguments], b"")
    assert ended.value.code == 2
