"""The grammar of the tools: `moldau COMMAND ACTION NAME --options`, and Kafka's own spelling `--ACTION --topic NAME`.

The action may stand anywhere that is not the value of an option. Each action has its own options, help and examples.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from moldau import __version__
from moldau.cli.common import add_client_options, parser, run, zookeeper_hint
from moldau.cli.failures import EXIT_USAGE
from moldau.core.arguments import likely, printable

Work = Callable[[argparse.Namespace], int]
Parser = argparse.ArgumentParser


class Action(NamedTuple):
    """An action of a command."""

    name: str
    purpose: str
    work: Work
    options: Callable[[Parser], None]
    examples: Sequence[str]
    """Command lines without the words `moldau COMMAND`."""
    noun: str | None = None
    """The option that a word behind the action fills, such as `topic`."""
    required: bool = False
    """Whether the noun must be given."""
    flags: Sequence[str] = ()
    """Kafka's spelling of the action."""
    destroys: bool = False
    """Whether people are asked first."""
    tries: bool = False
    """Whether it has a dry run."""


class Command(NamedTuple):
    """A command with actions."""

    name: str
    purpose: str
    actions: Sequence[Action]
    config_option: str = "--command-config"
    """The name that Kafka's tool gives the option for a file of properties."""
    is_local: bool = False
    """Whether it reads files and asks no cluster."""

    def run(self, argv: Sequence[str]) -> int:
        """Run the action that the arguments name; returns the exit code."""
        parsers = self.parsers()
        found, rest = self._split(list(argv), parsers)
        if found is None:
            return self._without_action(rest, parsers)
        options = parsers[found.name].parse_intermixed_args(rest)
        _place_words(parsers[found.name], found, options)
        return run(lambda: found.work(options))

    def parsers(self) -> dict[str, Parser]:
        """The parser of each action, by name."""
        return {action.name: self._parser(action) for action in self.actions}

    def _without_action(self, rest: Sequence[str], parsers: dict[str, Parser]) -> int:
        if any(each in ("-h", "--help", "help") for each in rest):
            sys.stdout.write(self._help())
            return 0
        if "--version" in rest:
            sys.stdout.write(f"moldau {__version__}\n")
            return 0
        word = next((rest[index] for index in self._words(rest, parsers)), None)
        names = [action.name for action in self.actions]
        problem = f"say what to do: {', '.join(names)}"
        if zookeeper_hint(rest):
            problem = f"unrecognized arguments: --zookeeper{zookeeper_hint(rest)}"
        elif word is not None:
            meant = likely(word, names) or f": there are {', '.join(names)}"
            problem = f"there is no action {printable(word)!r}{meant}"
        sys.stderr.write(f"usage: moldau {self.name} ACTION ...\nmoldau {self.name}: error: {problem}\n")
        sys.exit(EXIT_USAGE)

    def _split(self, argv: list[str], parsers: dict[str, Parser]) -> tuple[Action | None, list[str]]:
        """The action, and the arguments without it.

        A name that comes first decides: `reassign balance --execute` is not Kafka's `--execute`.
        """
        for action in self.actions:
            if argv and argv[0] == action.name:
                return action, argv[1:]
        flagged = [(each, action) for action in self.actions for each in argv if each in action.flags]
        if len({action.name for _, action in flagged}) > 1:
            parsers[flagged[0][1].name].error(f"{flagged[0][0]} and {flagged[1][0]} exclude each other")
        if flagged:
            flag, action = flagged[0]
            return action, [each for each in argv if each != flag]
        for index in self._words(argv, parsers):
            named = [action for action in self.actions if action.name == argv[index]]
            return (named[0], argv[:index] + argv[index + 1 :]) if named else (None, argv)
        return None, argv

    @staticmethod
    def _words(argv: Sequence[str], parsers: dict[str, Parser]) -> Iterator[int]:
        """Places of the arguments that are neither options nor values of options."""
        known = {}
        for each in parsers.values():
            known.update(each._option_string_actions)
        is_value = False
        for index, argument in enumerate(argv):
            if is_value:
                is_value = False
            elif argument.startswith("-") and len(argument) > 1:
                option = known.get(argument)
                is_value = option is not None and option.nargs is None and "=" not in argument
            else:
                yield index

    def _parser(self, action: Action) -> Parser:
        names = f"{self.name} {action.name}"
        made = parser(names, action.purpose, self._examples([action]), is_local=self.is_local)
        if not self.is_local:
            add_client_options(made, self.config_option)
            made.add_argument("--bootstrap-controller", metavar="HOST:PORT,...", help=argparse.SUPPRESS)
        made.add_argument("--json", action="store_true", help="print JSON, for programs")
        if action.destroys:
            made.add_argument("--yes", "--force", action="store_true", help="do not ask first")
        if action.tries:
            made.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
        if action.noun is not None:
            made.add_argument("words", nargs="*", metavar=action.noun.upper(), help=f"the same as --{_dashed(action)}")
        action.options(made)
        return made

    def _examples(self, actions: Sequence[Action]) -> list[str]:
        return [f"moldau {self.name} {example}" for action in actions for example in action.examples]

    def _help(self) -> str:
        width = max(len(action.name) for action in self.actions)
        listed = "".join(f"  {action.name:{width}}  {action.purpose}\n" for action in self.actions)
        examples = "".join(
            f"  {each}\n" for each in self._examples([a._replace(examples=a.examples[:1]) for a in self.actions])
        )
        hint = f"`moldau {self.name} ACTION --help` says more. Kafka's own options are understood too."
        usage = f"usage: moldau {self.name} ACTION ...\n\n{self.purpose}\n"
        return f"{usage}\nactions:\n{listed}\nexamples:\n{examples}\n{hint}\n"


def _place_words(made: Parser, action: Action, options: argparse.Namespace) -> None:
    """Fill the option that the words behind an action stand for."""
    if action.noun is None:
        return
    words = list(options.words)
    present = getattr(options, action.noun)
    if isinstance(present, list):
        setattr(options, action.noun, [*present, *words])
        words = []
    elif present is None and words:
        setattr(options, action.noun, words.pop(0))
    if words:
        made.error(f"one {_dashed(action)} at a time: {' '.join(words)!r} is too much")
    if action.required and not getattr(options, action.noun):
        made.error(f"{action.name} needs {'' if action.noun.endswith('s') else 'a '}{_dashed(action)}")


def _dashed(action: Action) -> str:
    """The noun of an action, as its option has it."""
    return (action.noun or "").replace("_", "-")
