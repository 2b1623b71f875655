"""`moldau topics`, on Apache Kafka 4.3.1 as well as on a broker of ours."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from moldau.__main__ import main
from tests.cli.conftest import Ended, Tool


@pytest.fixture
def tool(either_tool: Tool) -> Tool:
    return either_tool


def asked(tool: Tool, *arguments: str) -> Any:
    """What an action prints for programs."""
    return json.loads(tool.ok("topics", *arguments, "--json"))


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
    arguments = ("topics", f"--{action}", "--topic", topic, *(["--partitions", "2"] if action == "alter" else []))
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


def test_partitions_are_chosen_by_their_in_sync_replicas_and_topics_by_their_id(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "1")
    assert "Partition: 0" in tool.ok("topics", "--describe", "--topic", topic, "--at-min-isr-partitions")
    assert tool.ok("topics", "--describe", "--topic", topic, "--under-min-isr-partitions") == ""
    (told,) = asked(tool, "describe", topic, "--at-min-isr-partitions")
    assert asked(tool, "describe", "--topic-id", told["topicId"])[0]["topic"] == topic
    assert "no topic with the id" in tool.error("topics", "--describe", "--topic-id", "AAAA")


def test_bad_names_and_settings_are_refused_with_the_brokers_words(tool: Tool, topic: str) -> None:
    assert "a b" in tool.error("topics", "create", "a b")
    assert "no.such.setting" in tool.error("topics", "create", topic, "--config", "no.such.setting=1")
    assert "name=value" in tool.error("topics", "create", topic, "--config", "retention.ms")
    for assignment in ("", "1,", "0:x", "-1", "99999999999999999999"):
        assert "0:1,1:2" in tool.error("topics", "create", topic, f"--replica-assignment={assignment}")
    tool.ok("topics", "create", topic)
    assert "--delete-config is empty" in tool.error("topics", "alter", topic, "--delete-config", "")


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
        ["list", "--create", "--topic", "x", "--list"],
        ["delete", "x", "--partitions", "2"],
        ["create"],
        ["make", "x"],
        ["create", "x", "y"],
    ],
)
def test_wrong_usage_exits_with_two(run_tool: Callable[[list[str], bytes], Ended], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_tool(["topics", *arguments], b"")
    assert ended.value.code == 2


def test_alter_without_a_change_says_what_there_is_to_say(tool: Tool, topic: str) -> None:
    assert "--partitions" in tool.error("topics", "--alter", "--topic", topic)


def test_programs_get_json(tool: Tool, topic: str) -> None:
    assert asked(tool, "create", topic, "--partitions", "2", "--config", "retention.ms=60000")["created"]
    assert topic in asked(tool, "list")
    (told,) = asked(tool, "describe", topic)
    assert (told["topic"], told["internal"], told["configs"]["retention.ms"]) == (topic, False, "60000")
    assert [(each["partition"], len(each["replicas"])) for each in told["partitions"]] == [(0, 1), (1, 1)]
    assert asked(tool, "describe", topic, "--under-replicated-partitions") == []
    assert asked(tool, "delete", topic) == [{"topic": topic, "deleted": True}]


def test_a_dry_run_changes_nothing_and_finds_mistakes(tool: Tool, topic: str) -> None:
    assert "can be created" in tool.ok("topics", "create", topic, "--dry-run")
    assert topic not in asked(tool, "list")
    assert "no.such.setting" in tool.error("topics", "create", topic, "--dry-run", "--config", "no.such.setting=1")
    tool.ok("topics", "create", topic, "--partitions", "1")
    assert "can be altered" in tool.ok("topics", "alter", topic, "--partitions", "5", "--dry-run")
    assert tool.ok("topics", "add-partitions", topic, "--dry-run") == f"Topic {topic} can have 2 partitions.\n"
    assert tool.ok("topics", "delete", topic, "--dry-run") == f"Would delete topic {topic}.\n"
    assert len(asked(tool, "describe", topic)[0]["partitions"]) == 1


def test_partitions_are_added_to_those_that_there_are(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--partitions", "2")
    assert tool.ok("topics", "add-partitions", topic, "--count", "3") == f"Topic {topic} has 5 partitions.\n"
    assert "PartitionCount: 5" in tool.ok("topics", "describe", topic)


def test_settings_are_altered_and_given_their_default_again(tool: Tool, topic: str) -> None:
    tool.ok("topics", "create", topic, "--config", "segment.ms=70000")
    tool.ok("topics", "alter", topic, "--config", "retention.ms=60000", "--delete-config", "segment.ms")
    configs = asked(tool, "describe", topic)[0]["configs"]
    assert configs["retention.ms"] == "60000"
    assert "segment.ms" not in configs


def test_a_name_that_is_an_action_is_still_a_name(tool: Tool) -> None:
    tool.ok("topics", "--create", "--topic", "list", "--if-not-exists")
    assert tool.ok("topics", "--topic", "list", "describe").startswith("Topic: list\t")
    assert tool.ok("topics", "delete", "list") == "Deleted topic list.\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "is_left"), [("n\n", True), ("", True), ("y\n", False)])
def test_people_are_asked_before_a_topic_is_deleted(
    either_bootstrap: str,
    tool: Tool,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    answer: str,
    is_left: bool,
) -> None:
    tool.ok("topics", "create", topic)
    with monkeypatch.context() as patched:
        errors = Terminal()
        patched.setattr("sys.stdin", Terminal(answer))
        patched.setattr("sys.stderr", errors)
        code = main(["topics", "delete", topic, "--bootstrap-server", either_bootstrap])
    capsysbinary.readouterr()
    assert f"Delete topic {topic} with all records? [y/N]" in errors.getvalue()
    assert (code == 1, topic in asked(tool, "list")) == (is_left, is_left)


def test_yes_asks_nothing(either_bootstrap: str, tool: Tool, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool.ok("topics", "create", topic)
    with monkeypatch.context() as patched:
        errors = Terminal()
        patched.setattr("sys.stdin", Terminal("n\n"))
        patched.setattr("sys.stderr", errors)
        assert main(["topics", "delete", topic, "--yes", "--bootstrap-server", either_bootstrap]) == 0
    assert errors.getvalue() == ""


@pytest.mark.parametrize("action", ["list", "create", "describe", "alter", "add-partitions", "delete"])
def test_every_action_has_help_with_examples(capsys: pytest.CaptureFixture[str], action: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topics", action, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  moldau topics {action}" in capsys.readouterr().out
