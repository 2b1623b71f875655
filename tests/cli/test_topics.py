"""`moldau topics`."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import Ended, Tool


def test_a_created_topic_is_listed_and_described(tool: Tool, topic: str) -> None:
    created = tool.ok("topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
    assert created == f"Created topic {topic}.\n"
    assert topic in tool.ok("topics", "--list").splitlines()
    headline, *partitions = tool.ok("topics", "--describe", "--topic", topic).splitlines()
    assert headline.startswith(f"Topic: {topic}\tTopicId: ")
    assert "\tPartitionCount: 3\tReplicationFactor: 1\t" in headline
    assert [line.split("\t")[2] for line in partitions] == ["Partition: 0", "Partition: 1", "Partition: 2"]


def test_subcommands_do_the_same_as_kafkas_options(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "2")
    assert "PartitionCount: 2" in tool.ok("topics", "describe", topic)
    assert tool.ok("topics", "delete", topic) == f"Deleted topic {topic}.\n"
    assert topic not in tool.ok("topics", "list").splitlines()


def test_settings_of_a_topic_are_shown(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--config", "retention.ms=60000", "--config", "cleanup.policy=compact,delete")
    described = tool.ok("topics", "--describe", "--topics-with-overrides", "--topic", topic)
    assert "retention.ms=60000" in described
    assert "cleanup.policy=compact,delete" in described
    assert described.count("\n") == 1


def test_partitions_are_added_and_never_taken_away(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    tool.ok("topics", "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in tool.ok("topics", "describe", topic)
    assert tool.error("topics", "--alter", "--topic", topic, "--partitions", "2").startswith("error: ")


def test_creating_twice_is_an_error_unless_told_otherwise(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic)
    assert "already exists" in tool.error("topics", "create", topic)
    assert tool.ok("topics", "create", topic, "--if-not-exists") == ""


@pytest.mark.parametrize("action", ["delete", "describe", "alter"])
def test_a_missing_topic_is_an_error_unless_told_otherwise(tool: Tool, topic: str, action: str) -> None:
    arguments = ("topics", f"--{action}", "--topic", topic, "--partitions", "2")
    assert "does not exist" in tool.error(*arguments)
    assert tool.ok(*arguments, "--if-exists") == ""


def test_topics_are_named_by_expression_too(tool: Tool, topic: str) -> None:
    for suffix in ("-a", "-b", "x"):
        tool.ok("topics", "create", topic + suffix)
    assert tool.ok("topics", "--list", "--topic", f"{topic}-.*").split() == [f"{topic}-a", f"{topic}-b"]
    tool.ok("topics", "--delete", "--topic", f"{topic}-a,{topic}-b")
    assert tool.ok("topics", "--list", "--topic", f"{topic}.*").split() == [f"{topic}x"]


def test_an_exact_name_is_not_taken_as_an_expression(tool: Tool, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}-a"):
        tool.ok("topics", "create", name)
    assert tool.ok("topics", "--delete", "--topic", f"{topic}.a") == f"Deleted topic {topic}.a.\n"


def test_only_partitions_in_trouble_are_shown_when_asked(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic)
    assert tool.ok("topics", "describe", topic, "--under-replicated-partitions") == ""
    assert tool.ok("topics", "describe", topic, "--unavailable-partitions") == ""


def test_bad_names_and_settings_are_refused_with_the_brokers_words(tool: Tool, topic: str) -> None:
    assert "a b" in tool.error("topics", "create", "a b")
    assert "no.such.setting" in tool.error("topics", "create", topic, "--config", "no.such.setting=1")
    assert "name=value" in tool.error("topics", "create", topic, "--config", "retention.ms")


def test_without_a_broker_the_error_says_what_to_do(run_tool: Callable[[list[str], bytes], Ended]) -> None:
    ended = run_tool(["topics", "--list", "--bootstrap-server", "127.0.0.1:1"], b"")
    assert ended.code == 1
    assert "moldau serve" in ended.errors
    assert ended.errors.count("\n") == 1


def test_the_words_may_stand_behind_options(tool: Tool, topic: str) -> None:
    assert tool.ok("topics", "--partitions", "2", "create", topic) == f"Created topic {topic}.\n"
    assert "PartitionCount: 2" in tool.ok("topics", "--describe", topic)


def test_the_hint_for_a_missing_topic_is_a_command_that_makes_it(tool: Tool, topic: str) -> None:
    said = tool.error("consume", "--topic", topic, "--max-messages", "1")
    hint = said.partition("`moldau ")[2].partition("`")[0]
    assert hint == f"topics create {topic}"
    assert tool.ok(*hint.split()) == f"Created topic {topic}.\n"


@pytest.mark.parametrize("option", ["--partitions", "--replication-factor"])
@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
def test_a_number_that_cannot_be_is_refused_before_the_broker_is_asked(
    run_tool: Callable[[list[str], bytes], Ended], capsysbinary: pytest.CaptureFixture[bytes], option: str, number: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["topics", "--create", "--topic", "t", f"{option}={number}"], b"")
    assert ended.value.code == 2
    assert option.encode() in capsysbinary.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--create"],
        ["--create", "--list"],
        ["--alter", "--topic", "x"],
        ["create"],
        ["make", "x"],
        ["create", "x", "y"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["topics", *arguments], b"")
    assert ended.value.code == 2
