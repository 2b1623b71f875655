"""`moldau configs`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.configs import assignments
from tests.cli.conftest import Ended, Tool
from tests.tools.java_tools import JavaTools
from tests.transaction_servers import new_topic, until


@pytest.fixture
def tool(either_tool: Tool) -> Tool:
    return either_tool


@pytest.fixture
def topic(either_bootstrap: str) -> str:
    return new_topic(either_bootstrap)


def settings(tool: Tool, *arguments: str) -> dict[str, Any]:
    """The values of an entity's settings."""
    (told,) = json.loads(tool.ok("configs", "describe", *arguments, "--json"))
    return {each["name"]: each["value"] for each in told["configs"]}


def until_set(tool: Tool, expected: dict[str, str], *arguments: str) -> None:
    """Wait until an entity has these settings: a broker of Kafka hears of them after the answer."""
    until(lambda: settings(tool, *arguments) == expected)


def test_settings_of_a_topic_are_altered_and_described(tool: Tool, topic: str) -> None:
    told = tool.ok(
        "configs", "alter", "topics", topic, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"
    )
    assert told == f"Completed updating config for topic {topic}.\n"
    until_set(tool, {"retention.ms": "1000", "cleanup.policy": "compact,delete"}, "topics", topic)
    tool.ok(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--delete-config", "cleanup.policy"
    )
    until_set(tool, {"retention.ms": "1000"}, "--topic", topic)
    assert settings(tool, "topics", topic, "--all")["cleanup.policy"] == "delete"


def test_kafkas_tool_describes_the_same(either_bootstrap: str, kafka_classpath: str, tool: Tool, topic: str) -> None:
    tool.ok("configs", "alter", "topics", topic, "--add-config", "retention.ms=1000,segment.bytes=2000000")
    until_set(tool, {"retention.ms": "1000", "segment.bytes": "2000000"}, "topics", topic)
    line = ("--describe", "--entity-type", "topics", "--entity-name", topic)
    theirs = JavaTools(kafka_classpath, either_bootstrap).tool("ConfigCommand", *line)
    assert sorted(tool.ok("configs", *line).splitlines()) == sorted(theirs.splitlines())


def test_settings_of_brokers_are_their_own_or_everybodys(tool: Tool) -> None:
    (broker,) = tool.ok("configs", "list", "brokers").split()
    tool.ok("configs", "alter", "brokers", broker, "--add-config", "log.cleaner.threads=2")
    until_set(tool, {"log.cleaner.threads": "2"}, "brokers", broker)
    tool.ok("configs", "alter", "brokers", broker, "--delete-config", "log.cleaner.threads")
    tool.ok("configs", "alter", "--broker-defaults", "--add-config", "log.segment.bytes=7654321")
    until_set(tool, {}, "brokers", broker)
    # Kafka makes a default of its own when it is new: min.insync.replicas.
    until(lambda: bool(settings(tool, "brokers", "--entity-default").get("log.segment.bytes") == "7654321"))
    described = tool.ok("configs", "--describe", "--entity-type", "brokers")
    assert f"Dynamic configs for broker {broker} are:\nDefault configs for brokers" in described
    tool.ok("configs", "alter", "brokers", "--entity-default", "--delete-config", "log.segment.bytes")


def test_groups_and_loggers_have_settings_too(tool: Tool, topic: str) -> None:
    tool.ok("configs", "alter", "groups", topic, "--add-config", "consumer.session.timeout.ms=50000")
    until_set(tool, {"consumer.session.timeout.ms": "50000"}, "groups", topic)
    assert topic in tool.ok("configs", "list", "groups").split()
    (broker,) = tool.ok("configs", "list", "broker-loggers").split()
    assert settings(tool, "broker-loggers", broker, "--all")["root"] in ("INFO", "WARN", "ERROR")


def test_a_dry_run_changes_nothing_and_finds_mistakes(tool: Tool, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "changes.properties"
    file.write_text("retention.ms=60000\n")
    alter = ("configs", "alter", "topics", topic)
    assert "can be updated" in tool.ok(*alter, "--add-config-file", str(file), "--dry-run")
    assert settings(tool, "topics", topic) == {}
    for mistake in ("no.such.setting=1", "retention.ms=soon"):
        assert mistake.partition("=")[0] in tool.error(*alter, "--add-config", mistake, "--dry-run")
    tool.ok(*alter, "--add-config-file", str(file))
    until_set(tool, {"retention.ms": "60000"}, "topics", topic)


def test_mistakes_are_named(tool: Tool, topic: str) -> None:
    for arguments, words in {
        ("describe",): "say of what",
        ("describe", "tables"): "no entity type 'tables'",
        ("describe", "topics", "nope-nope"): "does not exist",
        ("describe", "brokers", "x"): "not the id of a broker",
        ("describe", "brokers", "77"): "no broker 77",
        ("describe", "topics", topic, "more"): "too much",
        ("describe", "users", "bob"): "quotas",
        ("--describe", "--user", "bob"): "quotas",
        ("--alter", "--client-defaults", "--add-config", "producer_byte_rate=1"): "quotas",
        ("list", "topics", "--bootstrap-controller", "x:1"): "--bootstrap-server",
        ("alter", "topics", "--add-config", "a=1"): "name the entity",
        ("alter", "topics", topic): "--add-config",
        ("alter", "topics", topic, "--add-config", "a"): "name=value",
        ("alter", "topics", topic, "--add-config", "a=1", "--delete-config", "a"): "both",
        ("alter", "topics", "--entity-default", "--add-config", "a=1"): "--entity-default",
        ("list", "topics", topic): "a type only",
    }.items():
        assert words in tool.error("configs", *arguments)


def test_values_in_brackets_have_commas() -> None:
    assert assignments("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}


@pytest.mark.parametrize("arguments", [[], ["drop"], ["describe", "topics", "--al"], ["--describe", "--alter"]])
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["configs", *arguments], b"")
    assert ended.value.code == 2
