"""`moldau completion`: the script is run by a real bash, and completes what the parsers know and the cluster has."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.__main__ import COMMANDS
from moldau.cli.completion import lines
from moldau.testing.brokers import BrokerInThread
from tests.cli.conftest import Ended, Tool

pytestmark = pytest.mark.foreign  # it starts bash

Run = Callable[[list[str], bytes], Ended]

PRESS_TAB = """source "$1"
moldau() { "$PYTHON" -m moldau "$@"; }
COMP_LINE="$2"
read -ra COMP_WORDS <<< "$COMP_LINE"
[[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_moldau
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def complete(run_tool: Run, tmp_path: Path) -> Callable[[str], list[str]]:
    """Words that TAB offers at the end of a line."""
    script = tmp_path / "moldau.bash"
    script.write_text(run_tool(["completion", "bash"], b"").output)

    def press(line: str) -> list[str]:
        ended = subprocess.run(
            ["bash", "--norc", "-c", PRESS_TAB, "bash", str(script), line],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": str(tmp_path)},
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    return press


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("moldau to", ["topics"]),
        ("moldau topics cr", ["create"]),
        ("moldau topics create --part", ["--partitions"]),
        ("moldau topics --bootstrap-server x:1 cre", ["create"]),
        ("moldau produce --acks ", ["0", "1", "-1", "all"]),
        ("moldau log verify sub", ["subdirectory"]),
        ("moldau completion z", ["zsh"]),
        ("moldau nonsense --x", []),
    ],
)
def test_words_are_completed(
    complete: Callable[[str], list[str]], tmp_path: Path, line: str, expected: list[str]
) -> None:
    (tmp_path / "subdirectory").mkdir()
    assert complete(line) == expected


def test_every_command_is_offered(complete: Callable[[str], list[str]]) -> None:
    assert set(complete("moldau ")) == {*COMMANDS, "--help", "--version"}


def test_names_of_topics_and_groups_come_from_the_cluster(
    complete: Callable[[str], list[str]], tool: Tool, moldau_broker: BrokerInThread
) -> None:
    tool.ok("topics", "create", "visits")
    tool.ok("topics", "create", "visitors")
    place = f"--bootstrap-server {moldau_broker.bootstrap}"
    assert complete(f"moldau topics {place} describe visi") == ["visitors", "visits"]
    assert complete(f"moldau consume {place} --topic visit") == ["visitors", "visits"]


def test_a_cluster_that_is_gone_offers_nothing(complete: Callable[[str], list[str]]) -> None:
    assert complete("moldau topics --bootstrap-server 127.0.0.1:1 describe visi") == []


def test_every_parser_is_in_the_scripts(run_tool: Run) -> None:
    known = lines()
    assert {line.command for line in known} == set(COMMANDS)
    fish = run_tool(["completion", "fish"], b"").output
    zsh = run_tool(["completion", "zsh"], b"").output
    assert "bashcompinit" in zsh
    for line in known:
        for word in line.words:
            assert word in zsh
            assert word.removeprefix("--") in fish
