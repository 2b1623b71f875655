"""Tools that need several brokers, on three of Apache Kafka 4.3.1: the tests of `reassign` and `brokers` that three
brokers of ours pass, once more, and elections and a diagnosis while a broker is gone."""

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bench.kafka_cluster import Cluster, kafka_cluster
from tests.cli.conftest import Ended, Tool
from tests.cli.test_brokers import (
    test_a_broker_is_drained_of_leaderships,
    test_a_broker_is_drained_of_replicas,
    test_a_partition_with_replicas_everywhere_stays_unless_it_may_shrink,
)
from tests.cli.test_reassign import (
    test_a_plan_is_made_begun_and_verified,
    test_a_throttled_move_is_cancelled_and_the_throttle_goes,
    test_balance_by_leaders_copies_nothing_and_leaders_change_at_once,
    test_balance_shows_what_moves_and_moves_it,
    test_kafkas_tool_takes_our_plan_and_we_take_its,
)
from tests.transaction_servers import until

pytestmark = pytest.mark.foreign
__all__ = [
    "test_a_broker_is_drained_of_leaderships",
    "test_a_broker_is_drained_of_replicas",
    "test_a_partition_with_replicas_everywhere_stays_unless_it_may_shrink",
    "test_a_plan_is_made_begun_and_verified",
    "test_a_throttled_move_is_cancelled_and_the_throttle_goes",
    "test_balance_by_leaders_copies_nothing_and_leaders_change_at_once",
    "test_balance_shows_what_moves_and_moves_it",
    "test_kafkas_tool_takes_our_plan_and_we_take_its",
]

JAVA_STARTS_S = 120.0
"""Two cores are shared with other tests."""
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "3000",
}


@pytest.fixture(scope="module")
def three(kafka_classpath: str) -> Iterator[Cluster]:
    """Three brokers of Apache Kafka that lead what they are told to lead."""
    assert kafka_classpath
    with kafka_cluster(SETTINGS) as running:
        running.start()
        yield running


class ToolOfThree(Tool):
    """Begins the next command when each of the brokers knows a topic that was made: KRaft tells them one by one."""

    def ok(self, command: str, *arguments: str, stdin: bytes = b"") -> str:
        output = super().ok(command, *arguments, stdin=stdin)
        if (command, *arguments[:1]) == ("topics", "create"):
            describe = ["topics", "describe", arguments[1], "--bootstrap-server"]
            for address in self._bootstrap.split(","):
                until(partial(self._is_ok, [*describe, address]), JAVA_STARTS_S)
        return output

    def _is_ok(self, arguments: list[str]) -> bool:
        return self._run(arguments, b"").code == 0


@pytest.fixture
def tool(three: Cluster, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    made = ToolOfThree(three.bootstrap, run_tool)
    until(lambda: alive(made) == {1, 2, 3}, JAVA_STARTS_S)
    return made


def alive(tool: Tool) -> set[int]:
    """The brokers that are there, as one of them knows it."""
    ended = tool("brokers", "list", "--json")
    return {each["id"] for each in json.loads(ended.output or "[]") if each["state"] == "alive"}


def led(tool: Tool, topic: str, leader: int | None, *isr: int) -> bool:
    """Whether the partition has this leader and these in-sync replicas. A broker that was asked may not know yet."""
    ended = tool("topics", "describe", topic, "--json")
    if ended.code != 0:
        return False
    (told,) = json.loads(ended.output)
    found = told["partitions"][0]
    return bool(found["leader"] == leader and (not isr or sorted(found["isr"]) == sorted(isr)))


def test_unclean_and_preferred_leaders_are_elected_and_the_doctor_sees_what_is_wrong(
    three: Cluster, tool: Tool, topic: str
) -> None:
    def await_led(leader: int | None, *isr: int) -> None:
        until(lambda: led(tool, topic, leader, *isr), JAVA_STARTS_S)

    tool.ok("topics", "create", topic, "--replica-assignment", "1:3", "--config", "min.insync.replicas=1")
    three.nodes[3].kill()
    await_led(1, 1)
    told = json.loads(tool("doctor", "--json", "--watch", "0").output)
    under_replicated = next(each for each in told if each["check"] == "under-replicated")
    assert f"{topic}-0" in under_replicated["subjects"]
    assert tool.ok("topics", "describe", topic, "--at-min-isr-partitions").count("Partition: 0") == 1
    tool.ok("produce", topic, stdin=b"only broker 1 has it\n")
    three.nodes[1].kill()
    three.nodes[3].begin()
    await_led(None)
    until(lambda: alive(tool) == {2, 3}, JAVA_STARTS_S)
    elect = ("--topic", topic, "--partition", "0")
    assert f"(UNCLEAN) for partitions {topic}-0" in tool.ok("elect", "unclean", *elect)
    await_led(3)

    three.nodes[1].begin()
    await_led(3, 1, 3)
    assert tool.ok("elect", "preferred", *elect, "--dry-run") == f"Would elect 1 for {topic}-0, led by 3.\n"
    assert f"(PREFERRED) for partitions {topic}-0" in tool.ok("elect", "preferred", *elect)
    await_led(1)
