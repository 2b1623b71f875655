"""The `moldau` command itself."""

import gc
import subprocess
import sys
from types import ModuleType

import pytest

from moldau import __main__, __version__
from moldau.__main__ import COMMANDS, main


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
