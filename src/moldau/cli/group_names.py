"""The groups that a command's options name."""

import argparse
from collections.abc import Sequence

from moldau.cli.common import add_bygone
from moldau.cli.failures import WrongUsage
from moldau.cli.group_queries import list_groups
from moldau.cli.wire import WireCluster

NAMES_IN_A_QUESTION_MAX = 5


def add_group_options(made: argparse.ArgumentParser) -> None:
    """Add the options that name groups."""
    made.add_argument("--group", action="append", default=[], metavar="GROUP", help="the group; may be repeated")
    made.add_argument("--all-groups", action="store_true", help="all groups of consumers")
    add_kafkas_options(made)


def add_kafkas_options(made: argparse.ArgumentParser) -> None:
    """Take what every line for kafka-consumer-groups may have. The tool gives up after 5 s unless told otherwise; here
    a request may take 30 s. Before 2.0 it was told which of two consumers is meant."""
    add_bygone(made, "--new-consumer", values=["--timeout"])


def named_groups(cluster: WireCluster, options: argparse.Namespace) -> list[str]:
    """The groups that the options name."""
    if options.group and options.all_groups:
        raise WrongUsage("--group and --all-groups exclude each other")
    if options.all_groups:
        return [each.group for each in list_groups(cluster)]
    if not options.group:
        raise WrongUsage("name a group, or say --all-groups: `moldau groups list` shows those that there are")
    return list(dict.fromkeys(options.group))


def counted(names: Sequence[str]) -> str:
    """The names, as a question mentions them."""
    listed = ", ".join(names[:NAMES_IN_A_QUESTION_MAX])
    more = f" and {len(names) - NAMES_IN_A_QUESTION_MAX} more" if len(names) > NAMES_IN_A_QUESTION_MAX else ""
    return f"group {listed}" if len(names) == 1 else f"{len(names)} groups ({listed}{more})"
