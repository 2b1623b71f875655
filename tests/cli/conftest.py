"""The tools in this process, on a broker of their own."""

import io
import sys
import uuid
from collections.abc import Callable
from typing import NamedTuple

import pytest

from moldau.__main__ import main
from moldau.testing.brokers import BrokerInThread


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    output: str
    errors: str


class Tool:
    """Runs `moldau COMMAND ...` against the broker."""

    def __init__(self, bootstrap: str, run: Callable[[list[str], bytes], Ended]) -> None:
        self._bootstrap = bootstrap
        self._run = run

    def __call__(self, command: str, *arguments: str, stdin: bytes = b"") -> Ended:
        return self._run([command, *arguments, "--bootstrap-server", self._bootstrap], stdin)

    def ok(self, command: str, *arguments: str, stdin: bytes = b"") -> str:
        """The output of a command that must succeed."""
        ended = self(command, *arguments, stdin=stdin)
        assert ended.code == 0, ended.errors
        return ended.output

    def error(self, command: str, *arguments: str, stdin: bytes = b"") -> str:
        """The one line that a failing command says."""
        ended = self(command, *arguments, stdin=stdin)
        assert ended.code == 1
        assert ended.errors.count("\n") == 1
        return ended.errors


@pytest.fixture
def run_tool(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str], bytes], Ended]:
    def run(arguments: list[str], stdin: bytes) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        output, errors = capsysbinary.readouterr()
        return Ended(code, output.decode(), errors.decode())

    return run


@pytest.fixture
def tool(moldau_broker: BrokerInThread, run_tool: Callable[[list[str], bytes], Ended]) -> Tool:
    return Tool(moldau_broker.bootstrap, run_tool)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:8]}"
