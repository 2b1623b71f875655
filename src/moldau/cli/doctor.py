"""`moldau doctor`: looks at a cluster, or at a data directory, and says what is wrong and what mends it."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

from moldau.cli.common import add_client_options, cluster_place, parser, run
from moldau.cli.diagnosis import CRITICAL, NOTICE, WARNING, Diagnosis, by_severity
from moldau.cli.doctor_cluster import CHECKS, look
from moldau.cli.doctor_directory import check_directory
from moldau.cli.doctor_groups import check_groups
from moldau.cli.failures import EXIT_FAILED, ToolError
from moldau.cli.output import BOLD, RED, painted, show_json
from moldau.cli.wire_places import wire_cluster
from moldau.core.arguments import printable
from moldau.inspection.reading import ReadError

WATCH_S = 2.0
EXAMPLES = (
    "moldau doctor",
    "moldau doctor --bootstrap-server kafka-1:9092 --json",
    "moldau doctor /var/lib/moldau",
)
_COLOURS = {CRITICAL: RED, WARNING: BOLD}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    made = argument_parser()
    options = made.parse_args(argv)
    if options.path and (options.bootstrap_server or options.cluster):
        made.error("a data directory or a cluster, one at a time")
    return run(lambda: _run(options))


def argument_parser() -> argparse.ArgumentParser:
    made = parser("doctor", "Say what is wrong with a cluster or a data directory, and what to do.", EXAMPLES)
    add_client_options(made, "--command-config")
    made.add_argument("path", nargs="?", metavar="PATH", help="a data directory; without it the cluster is asked")
    made.add_argument("--watch", type=_seconds, default=WATCH_S, metavar="SECONDS", help="to see whether lag grows")
    made.add_argument("--json", action="store_true", help="print JSON, for programs")
    return made


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return number


def _run(options: argparse.Namespace) -> int:
    found = by_severity(_directory(options.path) if options.path else _cluster(options))
    wrong = [each for each in found if each.severity != NOTICE]
    if options.json:
        show_json([each.value() for each in found])
    else:
        _tell(found, options.path or cluster_place(options).bootstrap)
    return EXIT_FAILED if wrong else 0


def _directory(path: str) -> list[Diagnosis]:
    if not os.path.isdir(path):
        raise ToolError(f"{path} is no directory: name a data directory, or --bootstrap-server HOST:PORT for a cluster")
    try:
        return list(check_directory(path))
    except ReadError as error:
        raise ToolError(str(error)) from error


def _cluster(options: argparse.Namespace) -> Iterator[Diagnosis]:
    with wire_cluster(options) as wire:
        cluster = look(wire)
        for check in CHECKS:
            yield from _guarded(check.__name__, check(cluster))
        yield from _guarded("check_groups", check_groups(cluster, options.watch))


def _guarded(name: str, found: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
    """The diagnoses of a check; one that cannot be made is a diagnosis as well, and the others go on."""
    try:
        yield from found
    except ToolError as error:
        subject = name.removeprefix("check_")
        yield Diagnosis(
            WARNING,
            "not-checked",
            f"{subject} could not be looked at: {error}",
            "mend what is told of the brokers first, and ask again",
            [subject],
        )


def _tell(found: Sequence[Diagnosis], subject: str) -> None:
    for each in found:
        first, *rest = each.lines()
        colour = _COLOURS.get(each.severity)
        shown = printable(first)
        sys.stdout.write(f"{painted(shown, colour, sys.stdout) if colour else shown}\n")
        sys.stdout.writelines(f"{printable(line)}\n" for line in rest)
    if not found:
        sys.stdout.write(f"{printable(subject)}: nothing is wrong.\n")
        return
    counts = [
        f"{sum(each.severity == severity for each in found)} {severity}" for severity in (CRITICAL, WARNING, NOTICE)
    ]
    sys.stdout.write(f"{printable(subject)}: {', '.join(counts)}\n")
