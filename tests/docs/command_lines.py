"""Command lines of the pages, put to the real parsers; nothing of a command is done."""

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from moldau.__main__ import COMMANDS
from moldau.cli.command_page import command_of, parsers_of

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
SHELLS = ("", "console", "sh", "shell", "bash")
PLACEHOLDERS = re.compile(r"\bCOMMAND\b|\bACTION\b|\.\.\.|\[OPTIONS\]|\[[A-Z]+\]|…")
"""Words of a line that shows a grammar and is not to be typed."""


class _Parsed(BaseException):
    """Leaves a command whose arguments were understood."""


def fenced(text: str) -> Iterator[str]:
    """Lines of code blocks for a shell that have the command `moldau` in them."""
    for block in FENCE.finditer(text):
        if block[1] in SHELLS:
            yield from (line.strip() for line in block[2].replace("\\\n", " ").splitlines())


def inline(text: str) -> Iterator[str]:
    """Code inside of sentences."""
    yield from INLINE.findall(FENCE.sub("", text))


def calls(line: str) -> Iterator[list[str]]:
    """Arguments of each `moldau ...` in a line of a shell."""
    if PLACEHOLDERS.search(line):
        return
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = [*_or_none(lexer), ";"]
    while words:
        end = next(index for index, word in enumerate(words) if set(word) <= set("|&;()"))
        call = _without_redirections(words[:end])
        while call and (re.fullmatch(r"[A-Z_]+=.*", call[0]) or call[0] in ("until", "while", "do", "if", "!")):
            call = call[1:]
        if call and Path(call[0]).name == "moldau":
            yield call[1:]
        words = words[end + 1 :]


def _or_none(lexer: shlex.shlex) -> list[str]:
    try:
        return list(lexer)
    except ValueError:  # an apostrophe in a sentence: no line of a shell
        return []


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif re.fullmatch(r"\d?[<>]+", word):
            skip = True
            if kept and kept[-1].isdigit() and not word[0].isdigit():
                kept.pop()  # the descriptor of `2> file`
        else:
            kept.append(word)
    return kept


def problem(arguments: list[str]) -> str | None:
    """The complaint of the real parser about a call; None if it understands it."""
    if not arguments or arguments[0] in ("--help", "--version", "-h", "-V", "help"):
        return None
    if arguments[0] not in COMMANDS:
        return f"there is no command {arguments[0]!r}"
    module = import_module(COMMANDS[arguments[0]][0])
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
        try:
            command = command_of(module)
            if command is not None:
                idle = [action._replace(work=lambda _options: 0) for action in command.actions]
                with mock.patch.object(module, "COMMAND", command._replace(actions=idle)):
                    module.main(arguments[1:])
            else:
                with _parsing_only():
                    module.main(arguments[1:])
        except _Parsed:
            return None
        except SystemExit as ended:
            return None if ended.code in (0, None) else told.getvalue().strip().splitlines()[-1]
    return None


@contextlib.contextmanager
def _parsing_only() -> Iterator[None]:
    parse = argparse.ArgumentParser.parse_args
    intermixed = argparse.ArgumentParser.parse_intermixed_args

    def parsed(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            real(*arguments, **options)
            raise _Parsed

        return call

    with mock.patch.multiple(
        argparse.ArgumentParser, parse_args=parsed(parse), parse_intermixed_args=parsed(intermixed)
    ):
        yield


def unknown_words(arguments: list[str]) -> list[str]:
    """Options of a call inside of a sentence that no parser of its command has; a call may be cut short there."""
    if not arguments or arguments[0] not in COMMANDS:
        return [arg for arg in arguments[:1] if not arg.startswith("-") and not arg.isupper()]
    module = import_module(COMMANDS[arguments[0]][0])
    known = {option for _, parser in parsers_of(module) for option in parser._option_string_actions}
    command = command_of(module)
    if command is not None:
        known |= {flag for action in command.actions for flag in action.flags}
    options = [word.rstrip(",").split("=")[0] for word in arguments[1:] if word.startswith("--")]
    return [option for option in options if option not in known]
