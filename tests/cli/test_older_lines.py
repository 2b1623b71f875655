"""Lines for the scripts of Kafka 0.8 to 2.x, with the script's name replaced, do what they did."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tool

LINES = b"one\ntwo\nthree\n"


@pytest.fixture
def three(tool: Tool, topic: str) -> str:
    """A topic with three records."""
    tool.ok("produce", "--topic", topic, stdin=LINES)
    return topic


@pytest.mark.parametrize(
    "properties",
    [
        ("acks=0",),
        ("acks=1",),
        ("request.required.acks=1",),
        ("retries=0",),
        ("max.in.flight.requests.per.connection=6", "acks=all"),
    ],
)
def test_properties_that_exclude_idempotence_are_taken(tool: Tool, topic: str, properties: tuple[str, ...]) -> None:
    """`--producer-property acks=1` stands in many a tutorial; librdkafka refuses it beside idempotence."""
    given = [word for each in properties for word in ("--producer-property", each)]
    tool.ok("produce", "--topic", topic, *given, stdin=LINES)
    tool.ok("perf", "produce", "--topic", topic, "--num-records=1", "--record-size=1", "--producer-props", *properties)
    assert tool.ok("consume", topic, "--from-beginning", "--max-messages=3") == LINES.decode()


def test_idempotence_that_is_asked_for_is_not_left_out(tool: Tool, topic: str) -> None:
    asked = ("--producer-property", "acks=1", "--producer-property", "enable.idempotence=true")
    assert "`acks` must be set to `all`" in tool.error("produce", topic, *asked, stdin=LINES)


def test_assignors_of_java_are_known(tool: Tool, three: str) -> None:
    assignors = "org.apache.kafka.clients.consumer.RangeAssignor, org.apache.kafka.clients.consumer.RoundRobinAssignor"
    there = ("--group", three, "--from-beginning", "--max-messages=3")
    line = ("consume", three, *there, "--consumer-property", f"partition.assignment.strategy={assignors}")
    assert tool.ok(*line) == LINES.decode()


def test_a_line_for_the_first_console_producer_compresses(tool: Tool, topic: str) -> None:
    tool.ok(
        *("produce", "--topic", topic, "--compress", "--queue-size=10", "--queue-enqueuetimeout-ms=-1"),
        *("--value-serializer", "kafka.serializer.StringEncoder", "--old-producer"),
        stdin=LINES,
    )
    assert tool.ok("consume", topic, "--new-consumer", "--from-beginning", "--max-messages=3") == LINES.decode()


def test_a_line_for_the_simple_consumer_shell_ends_at_the_end_of_the_log(tool: Tool, three: str) -> None:
    place = ("--topic", three, "--partition=0", "--clientId", "me", "--no-wait-at-logend")
    assert tool.ok("consume", *place, "--offset", "-2", "--print-offsets") == (
        "Offset:0\tone\nOffset:1\ttwo\nOffset:2\tthree\n"
    )
    assert tool.ok("consume", *place, "--offset", "-1") == ""


def test_a_line_for_the_first_get_offset_shell_tells_the_newest(tool: Tool, three: str) -> None:
    line = ("offsets", "get", "--topic", three, "--time", "-1", "--offsets", "1", "--max-wait-ms", "1000")
    assert tool.ok(*line) == f"{three}:0:3\n"


def test_lines_for_the_first_perf_tools_measure(tool: Tool, topic: str) -> None:
    few = ("--messages", "30", "--threads", "4")
    older = ("--batch-size", "10", "--compression-codec", "1", "--request-num-acks", "1", "--sync")
    tool.ok("topics", "create", topic)
    ended = tool("perf", "produce", "--topics", topic, "--message-size", "10", *few, *older)
    assert ended.code == 0
    assert "30 records sent" in ended.output
    assert "--threads 4 has no meaning" in ended.errors
    assert "nMsg.sec" in tool.ok("perf", "consume", "--topic", topic, "--num-fetch-threads", "2", *few)


def test_groups_are_listed_with_the_options_of_any_line(tool: Tool, three: str) -> None:
    tool.ok("consume", three, "--group", three, "--from-beginning", "--max-messages=3")
    assert three in tool.ok("groups", "--new-consumer", "--list", "--timeout", "5000")
    assert three in tool.ok("groups", "--new-consumer", "--describe", "--group", three)


def test_a_line_for_the_replay_tool_copies(tool: Tool, three: str) -> None:
    tool.ok("replay", "--inputtopic", three, "--outputtopic", f"{three}-copy")
    assert tool.ok("consume", f"{three}-copy", "--from-beginning", "--max-messages=3") == LINES.decode()


def test_a_line_for_the_preferred_replica_election_elects(tool: Tool, three: str, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": three, "partition": 0}]}))
    tool.ok("elect", "preferred", "--path-to-json-file", str(file))
