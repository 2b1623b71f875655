"""The `moldau` command itself."""

import gc
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from moldau import __main__, __version__
from moldau.__main__ import COMMANDS, main
from moldau.cli.command_page import parsers_of
from moldau.testing.brokers import BrokerInThread

CPU_MAX_S = 0.25


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    assert all(f"moldau {name}" in output for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"moldau {__version__}\n"


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topix"]) == 2
    assert "'topix'" in capsys.readouterr().err


def test_the_broker_starts_without_the_tools_clients() -> None:
    program = "import sys, moldau.__main__, moldau.broker.main; print('confluent_kafka' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"


def test_nothing_that_a_command_imports_is_searched_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    command = ModuleType("command")
    monkeypatch.setattr(command, "main", lambda _: seen.append(("runs", gc.isenabled())) or 0, raising=False)  # type: ignore[func-returns-value]
    monkeypatch.setattr(__main__, "import_module", lambda _: seen.append(("is imported", gc.isenabled())) or command)  # type: ignore[func-returns-value]
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("frozen"))
    monkeypatch.setattr(sys, "argv", ["moldau", "topics"])
    assert main() == 0
    assert seen == [("is imported", False), "frozen", ("runs", True)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with suppress(SystemExit):
        main([command, "--help"])
    assert "examples:\n" in capsys.readouterr().out
    for words, parser in parsers_of(import_module(COMMANDS[command][0])):
        assert f"examples:\n  moldau {command}" in (parser.epilog or ""), words


WITHOUT_JSON = {
    "serve": "a broker",
    "console": "a server, too",
    "completion": "its output is a script",
    "pipeline run": "a server; `pipeline status --json` tells how it is",
    "pipeline stop": "it says nothing but done",
    "pipeline replay": "a run; its result is in the sink",
    "pipeline reset": "it says nothing but done",
    "pipeline redrive": "each dead letter is a line, for people who choose",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_tool_speaks_json_or_has_a_reason(command: str) -> None:
    for words, parser in parsers_of(import_module(COMMANDS[command][0])):
        assert ("--json" in parser._option_string_actions) is (words not in WITHOUT_JSON), words


def test_every_tool_tells_its_version_as_kafkas_do(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["topics", "--version"], ["topics", "list", "--version"], ["consume", "--version"]):
        with suppress(SystemExit):
            main(line)
        assert capsys.readouterr().out == f"moldau {__version__}\n"


def test_a_cluster_is_found_by_its_name(
    moldau_broker: BrokerInThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = tmp_path / "clusters.toml"
    clusters.write_text(f'[clusters.here]\nbootstrap-server = "{moldau_broker.bootstrap}"\n')
    monkeypatch.setenv("MOLDAU_CONFIG", str(clusters))
    for command in (["topics", "list"], ["transactions", "list"]):
        assert main([*command, "--cluster", "here", "--json"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), list)
        assert main([*command, "--cluster", "there"]) == 1
        assert "no cluster 'there'" in capsys.readouterr().err


@pytest.mark.alone
def test_topics_are_listed_within_a_quarter_of_a_second_of_cpu(moldau_broker: BrokerInThread) -> None:
    program = [sys.executable, "-m", "moldau", "topics", "list", "--bootstrap-server", moldau_broker.bootstrap]
    taken = []
    for _ in range(3):
        before = os.times()
        subprocess.run(program, check=True, capture_output=True)
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) < CPU_MAX_S, taken
