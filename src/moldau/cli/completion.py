"""`moldau completion bash|zsh|fish`: a script that completes the words of a command line.

The commands, actions and options stand in the script, taken from their parsers, so that a press of TAB starts nothing;
only names of topics and groups are asked of the cluster (`moldau completion topics`), and not for long.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from moldau.__main__ import COMMANDS
from moldau.cli.actions import Command
from moldau.cli.common import parser, run
from moldau.cli.completion_scripts import SCRIPTS

ASK_TIMEOUT_S = 1.0
TOPICS, GROUPS, FILES, DIRECTORIES, SOMETHING = "@topics", "@groups", "@files", "@directories", "@something"
"""Kinds of values, beside words to choose from."""

_KINDS = {"topic": TOPICS, "group": GROUPS, "files": FILES, "logs": FILES, "dir": DIRECTORIES}
_FILE_HINTS = ("FILE", "PATH", "A,B,...", "DIR")
_PARSERS = ("argument_parser", "_parser")
EXAMPLES = (
    "moldau completion bash > ~/.local/share/bash-completion/completions/moldau",
    "moldau completion zsh > ~/.moldau.zsh    # and in ~/.zshrc: source ~/.moldau.zsh",
    "moldau completion fish > ~/.config/fish/completions/moldau.fish",
)


class Line(NamedTuple):
    """The words that may follow `moldau COMMAND ACTION`."""

    command: str
    action: str
    """Empty for a command without actions, and for the place where an action is due."""
    words: list[str]
    values: dict[str, str]
    """Kinds of the options that take a value: one of those above, or words with spaces between them."""
    noun: str
    """Kind of the words behind the action; empty if there are none."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = argument_parser()
    options = made.parse_args(argv)
    return run(lambda: _names(options) if options.what in (TOPICS[1:], GROUPS[1:]) else _script(options.what))


def argument_parser() -> argparse.ArgumentParser:
    purpose = "Print a script that completes words in a shell; `topics` and `groups` print names for it."
    made = parser("completion", purpose, EXAMPLES, is_local=True)
    made.add_argument("what", choices=(*SCRIPTS, TOPICS[1:], GROUPS[1:]), metavar="bash|zsh|fish")
    made.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help=argparse.SUPPRESS)
    made.add_argument("--cluster", metavar="NAME", help=argparse.SUPPRESS)
    return made


def _script(shell: str) -> int:
    sys.stdout.write(SCRIPTS[shell](lines(), {name: purpose for name, (_, purpose) in COMMANDS.items()}))
    return 0


def _names(options: argparse.Namespace) -> int:
    """Print names that the cluster has; nothing if it does not answer at once: nobody waits for TAB."""
    from confluent_kafka import KafkaException  # a tenth of a second that the scripts do not need
    from confluent_kafka.admin import AdminClient

    from moldau.cli.common import client_settings
    from moldau.cli.failures import ToolError

    options.client_config = None
    try:
        admin = AdminClient({**client_settings(options, {}), "socket.timeout.ms": 1000})
        if options.what == TOPICS[1:]:
            names = sorted(admin.list_topics(timeout=ASK_TIMEOUT_S).topics)
        else:
            found = admin.list_consumer_groups(request_timeout=ASK_TIMEOUT_S).result(ASK_TIMEOUT_S)
            names = sorted(each.group_id for each in found.valid)
    except (KafkaException, ToolError, TimeoutError):
        return 1
    sys.stdout.writelines(f"{name}\n" for name in names if name.isprintable() and " " not in name)
    return 0


# --- from parsers to words ---


def lines() -> list[Line]:
    """All command lines that there are."""
    return [line for name, (module, _) in COMMANDS.items() for line in _lines_of(name, import_module(module))]


def _lines_of(name: str, module: Any) -> list[Line]:
    command = getattr(module, "COMMAND", None)
    if isinstance(command, Command):
        parsers = command.parsers()
        nouns = {
            action.name: _KINDS.get(action.noun or "", SOMETHING if action.noun else "") for action in command.actions
        }
        first = Line(name, "", [*parsers, "--help"], {}, "")
        return [first, *(_line(name, action, made, nouns[action]) for action, made in parsers.items())]
    make = next((getattr(module, each) for each in _PARSERS if hasattr(module, each)), None)
    if make is None:
        return [Line(name, "", ["--help"], {}, "")]
    made: argparse.ArgumentParser = make()
    inner = [each for each in made._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        return [_line(name, "", made, "")]
    first = _line(name, "", made, "")
    actions = [_line(name, action, each, "") for action, each in inner[0].choices.items()]
    return [first._replace(words=[*inner[0].choices, *first.words]), *actions]


def _line(command: str, action: str, made: argparse.ArgumentParser, noun: str) -> Line:
    words: list[str] = []
    values: dict[str, str] = {}
    for each in made._actions:
        if each.help == argparse.SUPPRESS or isinstance(each, argparse._SubParsersAction):
            continue
        if not each.option_strings:
            noun = noun or _kind(each)
            continue
        words += [option for option in each.option_strings if option.startswith("--")]
        if each.nargs is None or each.nargs in ("*", "+", "?"):
            values |= dict.fromkeys(each.option_strings, _kind(each))
    return Line(command, action, words, values, noun)


def _kind(option: argparse.Action) -> str:
    if option.choices:
        return " ".join(map(str, option.choices))
    if option.dest in _KINDS:
        return _KINDS[option.dest]
    return FILES if str(option.metavar or "") in _FILE_HINTS else SOMETHING
