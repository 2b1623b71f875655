"""Every action of every command that asks a cluster, on Apache Kafka 4.3.1 as well as on a broker of ours, with options
that no other test tries on both. An action without a line in every_action.txt fails."""

import json
import shlex
from importlib import import_module
from pathlib import Path

from moldau.__main__ import COMMANDS
from moldau.cli.command_page import parsers_of
from tests.cli.conftest import Tool
from tests.cli.test_groups import commit

ELSEWHERE = {"serve", "console", "pipeline", "log", "state-changes", "completion"}
"""Commands that ask no cluster, or have tests with Apache Kafka in rooms of their own."""

LINES = Path(__file__).with_name("every_action.txt").read_text().splitlines()
"""Exit code, line, and what it prints."""


def lines() -> list[tuple[int, str, str]]:
    found = []
    for line in LINES:
        words, _, printed = line.partition(" =")
        found.append((int(words[0]), words[2:].strip(), printed.strip()))
    return found


def prepared(bootstrap: str, tool: Tool, topic: str, group: str, directory: Path) -> dict[str, str]:
    """Make two topics, of which one has three records in each of two partitions, a group at its second and third, and a
    group behind its end; returns the names that the lines say."""
    for name, partitions in ((topic, "2"), (f"{topic}-more", "1"), (f"{topic}-perf", "1")):
        tool.ok("topics", "create", name, "--partitions", partitions)
    for partition in ("0", "1"):
        tool.ok("produce", topic, "--partition", partition, stdin=b"v1\nv2\nv3\n")
    commit(bootstrap, group, topic, {0: 1, 1: 2})
    commit(bootstrap, f"{topic}-beyond", topic, {0: 99})
    (directory / "properties").write_text("client.id=me\n")
    (directory / "payloads").write_text("one|two|")
    [broker] = json.loads(tool.ok("brokers", "list", "--json"))
    files = {name: str(directory / name) for name in ("properties", "payloads", "plan", "file")}
    return {"broker": str(broker["id"]), **files}


def test_no_action_is_left_out() -> None:
    said = [line for _, line, _ in lines()]
    actions = [
        words
        for name, (module, _) in COMMANDS.items()
        if name not in ELSEWHERE
        for words, _ in parsers_of(import_module(module))
    ]
    assert [words for words in actions if not any(line.startswith(f"{words} ") for line in said)] == []


def test_every_action_works_on_either(
    either_bootstrap: str, either_tool: Tool, topic: str, group: str, tmp_path: Path
) -> None:
    names = {"topic": topic, "group": group}
    names |= prepared(either_bootstrap, either_tool, topic, group, tmp_path)
    wrong = []
    for code, line, printed in lines():
        ended = either_tool(*shlex.split(line.format(**names)), stdin=b"more\n")
        if ended.code != code or printed.format(**names) not in ended.output + ended.errors:
            wrong.append((line, ended))
        if "--json" in line and ended.output:
            json.loads(ended.output)
    assert wrong == []
