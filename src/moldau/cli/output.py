"""Output of the tools: tables for people, JSON for programs, and questions before something is destroyed.

A pipe gets the same columns as a terminal, without colours; control characters in names reach no terminal.
"""

import argparse
import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import UnsupportedOperation
from typing import Any, BinaryIO, TextIO

from moldau.cli.failures import ToolError
from moldau.core.arguments import printable

BOLD, RED, PLAIN = "\033[1m", "\033[31m", "\033[0m"
NOTHING = "-"
"""Shown for a value that there is not."""


def say(line: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{printable(line)}\n")


def note(line: str) -> None:
    """Say one line beside the output."""
    sys.stderr.write(f"{printable(line)}\n")


def show_json(value: object) -> None:
    """Print a value for programs."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def show(options: argparse.Namespace, value: object, lines: Iterable[str]) -> None:
    """Print the value for programs, or these lines for people."""
    if options.json:
        show_json(value)
        return
    for line in lines:
        say(line)


def show_table(
    options: argparse.Namespace, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str], none: str
) -> None:
    """Print rows under headings, given by key; where there are no rows, the sentence `none` goes to standard error."""
    if options.json:
        show_json(list(rows))
        return
    if not rows:
        sys.stderr.write(f"{none}\n")
        return
    cells = [[_cell(row.get(key)) for key in headings] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings.values(), *cells, strict=True)]
    sys.stdout.write(painted(_aligned(list(headings.values()), widths), BOLD, sys.stdout) + "\n")
    sys.stdout.writelines(f"{_aligned(row, widths)}\n" for row in cells)


def _cell(value: object) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, list | tuple):
        return ",".join(map(_cell, value)) or NOTHING
    return printable(str(value))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def raise_if_unread(output: BinaryIO) -> None:
    """Raise BrokenPipeError where nobody reads a pipe any more. A write would do so too, but nothing may come."""
    try:
        watched = select.poll()
        watched.register(output.fileno(), 0)
    except UnsupportedOperation:  # a buffer in memory
        return
    if any(event & select.POLLERR for _, event in watched.poll(0)):
        raise BrokenPipeError


def painted(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour, if people read the stream and have not set NO_COLOR."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"{colour}{text}{PLAIN}"


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask before something is destroyed. Without a terminal nobody can be asked: the command line has said it."""
    if options.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ToolError("nothing was done (--yes does it without a question)")
