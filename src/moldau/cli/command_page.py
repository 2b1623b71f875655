"""The page of all commands, docs/commands.md, made from their parsers: `python -m moldau.cli.command_page`.

It walks `COMMANDS`: a command of `actions.py` shows its actions, any other the parser that its `main` uses, with the
subcommands of that.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

from moldau.__main__ import COMMANDS
from moldau.cli.actions import Command

Parser = argparse.ArgumentParser

OPENING = """# Commands

Every command with all its options, made from the code by `make docs`. `moldau COMMAND --help` prints the same.
[The tools](tools.md) says what they have in common: the way to a cluster, output, exit codes.
"""


class _Asked(Exception):
    """Leaves a command at the moment in which it would parse its arguments."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser


def page() -> str:
    """The whole page."""
    parts = [OPENING, *(_section(name, module, purpose) for name, (module, purpose) in COMMANDS.items())]
    return "\n".join(parts)


def parser_of(module: ModuleType) -> Parser:
    """The parser that the `main` of a command uses; nothing of the command is done."""

    def leave(parser: Parser, *_: Any, **__: Any) -> None:
        raise _Asked(parser)

    names = ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args")
    left: dict[str, Any] = dict.fromkeys(names, leave)
    try:
        with mock.patch.multiple(Parser, **left):
            module.main([])
    except _Asked as asked:
        return asked.parser
    raise LookupError(f"{module.__name__}.main parses no arguments with argparse")


def command_of(module: ModuleType) -> Command | None:
    """The command of `actions.py` that a module has; None if it has another form."""
    return next((each for each in vars(module).values() if isinstance(each, Command)), None)


def parsers_of(module: ModuleType) -> list[tuple[str, Parser]]:
    """The parsers of a command, each with the words before its options."""
    command = command_of(module)
    if command is not None:
        return [(f"{command.name} {name}", parser) for name, parser in command.parsers().items()]
    return list(_with_subcommands(parser_of(module)))


def _with_subcommands(parser: Parser) -> Iterator[tuple[str, Parser]]:
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield parser.prog.removeprefix("moldau "), parser
    for group in below:
        seen: list[Parser] = []
        for each in group.choices.values():
            if each not in seen:  # the second name of one is not shown twice
                seen.append(each)
                yield from _with_subcommands(each)


def _section(name: str, module_name: str, purpose: str) -> str:
    found = parsers_of(import_module(module_name))
    lines = [f"## moldau {name}", "", f"{purpose[0].upper()}{purpose[1:]}.", ""]
    for words, parser in found:
        if len(found) > 1:
            lines += [f"### moldau {words}", ""]
        lines += _described(words, parser)
    return "\n".join(lines)


def _described(words: str, parser: Parser) -> Iterator[str]:
    if parser.description:
        yield from (" ".join(parser.description.split()), "")
    yield from ("```", f"moldau {words} {_words_after(parser)}".rstrip(), "```", "")
    shown = [each for each in parser._actions if each.help is not argparse.SUPPRESS and each.dest != "help"]
    if shown:
        yield from ("| option | |", "|---|---|", *(_row(each, parser) for each in shown), "")
    if parser.epilog and parser.epilog.startswith("examples:"):
        examples = [line.strip() for line in parser.epilog.splitlines()[1:] if line.strip()]
        yield from ("```", *examples, "```", "")
    elif parser.epilog:
        yield from (" ".join(parser.epilog.split()), "")


def _words_after(parser: Parser) -> str:
    places = [each for each in parser._actions if not each.option_strings]
    needed = [each for each in parser._actions if each.option_strings and each.required]
    options = [f"{each.option_strings[0]} {_value(each)}".rstrip() for each in needed]
    return " ".join([*(_place(each) for each in places), *options, "[OPTIONS]"])


def _place(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _value(action: argparse.Action) -> str:
    """The name of an option's value; empty for one that takes none."""
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return "|".join(map(str, action.choices)) if action.choices is not None else action.dest.upper()


def _row(action: argparse.Action, parser: Parser) -> str:
    names: Iterable[str] = action.option_strings or [_place(action)]
    shown = ", ".join(f"`{each}`" for each in names)
    value = _value(action) if action.option_strings else ""
    help_text = (action.help or "") % {**vars(action), "prog": parser.prog}
    needed = " (needed)" if action.required and action.option_strings else ""
    cells = (f"{shown} `{value}`" if value else shown, f"{' '.join(help_text.split())}{needed}")
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def main() -> int:
    """Write the page to standard output."""
    sys.stdout.write(page().rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
