"""Runs the code blocks of a page in their order, in one shell: what a reader does who types them.

A block of `console` has commands after `$ ` (a line after `> ` goes on) and their output. `...` in the output stands
for anything. A command ends with 0, or says `error:`; one with `&` at its end runs on, and its
output is awaited. A block with a title is a file of that name.
Ports of the page become free ones.
"""

import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

COMMAND_TIMEOUT_S = 120.0
END = "--- the command has ended: "
_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
_TITLE = re.compile(r'title="([^"]+)"')
_ENDED = re.compile(rf"\n{re.escape(END)}(\d+)\n")
NOTICES = re.compile(r"bash: line \d+: +\d+ (Killed|Terminated)|.*JAVA_TOOL_OPTIONS")
"""Lines of the shell and of Java about themselves."""


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    title: str | None
    text: str


class Step(NamedTuple):
    """A command, and the output that the page shows."""

    command: str
    output: list[str]


def blocks(page: Path) -> list[Block]:
    return [
        Block(found[1], title[1] if (title := _TITLE.search(found[2])) else None, found[3])
        for found in _FENCE.finditer(page.read_text())
    ]


def steps(text: str) -> list[Step]:
    made: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            made.append(Step(line[2:], []))
        elif line.startswith("> "):
            made[-1] = Step(f"{made[-1].command}\n{line[2:]}", [])
        else:
            made[-1].output.append(line.rstrip())
    return made


class Console:
    """A bash with job control, in a directory."""

    def __init__(self, directory: Path, environment: Mapping[str, str], ports: Mapping[str, str]) -> None:
        self._directory = directory
        self._ports = ports
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        assert self._shell.stdout is not None
        os.set_blocking(self._shell.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._shell.stdout, selectors.EVENT_READ)
        self._read = ""
        self._write("set -m")

    def run_page(self, page: Path) -> int:
        """Run a page; returns the number of commands."""
        count = 0
        for block in blocks(page):
            if block.title is not None:
                (self._directory / block.title).write_text(self._here(block.text))
            elif block.language == "console":
                for step in steps(block.text):
                    self._run(step)
                    count += 1
        return count

    def _run(self, step: Step) -> None:
        if step.command.startswith("pip install "):
            return  # the environment has the built wheel, and no index to ask
        self._write(f"{self._here(step.command)}\nprintf '\\n%s%s\\n' '{END}' $?")
        self._await(lambda text: _ENDED.search(text) is not None, step)
        ended = _ENDED.search(self._read)
        assert ended is not None
        self._read = self._read[: ended.start()] + self._read[ended.end() :]
        if step.command.endswith("&"):
            self._await(lambda text: matches(step.output, self._there(text)), step)
        shown = self._there(self._read)
        self._read = ""
        is_refused = any(line.startswith("error:") for line in step.output)
        assert (ended[1] != "0") == is_refused, f"$ {step.command}\nended with {ended[1]}:\n{shown}"
        assert matches(step.output, shown), f"$ {step.command}\nshows:\n{shown}\nthe page says:\n" + "\n".join(
            step.output
        )

    def _await(self, is_there: Callable[[str], bool], step: Step) -> None:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not is_there(self._read):
            if time.monotonic() > deadline or not self._more(deadline):
                raise AssertionError(f"$ {step.command}\ndid not show in time what the page says:\n{self._read}")

    def _more(self, deadline: float) -> bool:
        """Whether more output has come."""
        self._selector.select(max(0.0, deadline - time.monotonic()))
        assert self._shell.stdout is not None
        data = self._shell.stdout.read()
        self._read += (data or b"").decode(errors="replace")
        return bool(data)

    def _write(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{text}\n".encode())
        self._shell.stdin.flush()

    def _here(self, text: str) -> str:
        for written, real in self._ports.items():
            text = text.replace(written, real)
        return text

    def _there(self, text: str) -> str:
        for written, real in self._ports.items():
            text = text.replace(real, written)
        return "\n".join(line.rstrip() for line in text.splitlines() if not NOTICES.match(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # jobs have process groups of their own: the shell knows them
        self._write("kill -9 $(jobs -p) 2> /dev/null; wait; exit")
        self._shell.wait(COMMAND_TIMEOUT_S)


def matches(expected: list[str], shown: str) -> bool:
    """Whether output is what a page says; empty lines do not count."""
    lines = [line for line in expected if line.strip()]
    real = "\n".join(line for line in shown.splitlines() if line.strip())
    return re.fullmatch(_pattern(lines), real, re.S) is not None


def _pattern(lines: list[str]) -> str:
    return "\n".join(".*" if line.strip() == "..." else _one(line) for line in lines)


def _one(line: str) -> str:
    return "[^\n]*".join(re.escape(part) for part in line.rstrip().split("..."))
