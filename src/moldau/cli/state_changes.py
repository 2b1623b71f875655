"""`moldau state-changes merge FILES`: Kafka's StateChangeLogMerger, one history out of many brokers' logs."""

import argparse
import heapq
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from moldau.cli.actions import Action, Command
from moldau.cli.failures import ToolError, WrongUsage

FIRST, LAST = "0000-00-00 00:00:00,000", "9999-12-31 23:59:59,999"
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}")
_PART_OF_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([,.][0-9]{1,3})?)?)?")
_PARTITION = re.compile(r"\[([a-zA-Z0-9._-]+), *([0-9]+)\]")
_NEWER_PARTITION = re.compile(r"partition ([a-zA-Z0-9._-]+)-([0-9]+)\b")
"""A partition as Kafka has written it since 1.0."""


class Line(NamedTuple):
    """A line of a log about one partition."""

    time: str
    number: int
    """Number of the file: lines of the same time keep the order of the files."""
    topic: str
    partition: int
    text: str


class Wanted(NamedTuple):
    """Filters of lines; an empty one lets all pass."""

    topic: str | None
    partitions: frozenset[int]
    start: str
    end: str

    def lets_pass(self, line: Line) -> bool:
        return (
            self.start <= line.time <= self.end
            and self.topic in (None, line.topic)
            and (not self.partitions or line.partition in self.partitions)
        )


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


def _options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--logs", action="append", default=[], metavar="A,B,...", help="the logs to merge")
    made.add_argument("--logs-regex", metavar="DIR/REGEX", help="all files of the directory whose names match")
    made.add_argument("--topic", help="lines about this topic only")
    made.add_argument("--partitions", metavar="0,1,...", help="lines about these partitions of the topic only")
    made.add_argument("--start-time", default=FIRST, metavar="TIME", help="lines from then on: 2026-11-18 17:00:00,000")
    made.add_argument("--end-time", default=LAST, metavar="TIME", help="lines up to then")


def _merge(options: argparse.Namespace) -> int:
    if bool(options.logs) == bool(options.logs_regex):
        raise WrongUsage("name the logs, or give --logs-regex: one of the two")
    if options.partitions and not options.topic:
        raise WrongUsage("--partitions needs --topic")
    start, end = _time(options.start_time, "0"), _time(options.end_time, "9")
    wanted = Wanted(options.topic, _partitions(options.partitions), start, end)
    paths = _matching(options.logs_regex) if options.logs_regex else _named(options.logs)
    for path in paths:
        if not os.access(path, os.R_OK) or os.path.isdir(path):
            raise ToolError(f"cannot read {path}: name files that are there, joined by commas or spaces")
    for line in heapq.merge(*(_lines(path, number, wanted) for number, path in enumerate(paths))):
        told = {"time": line.time, "topic": line.topic, "partition": line.partition, "file": paths[line.number]}
        sys.stdout.write(json.dumps({**told, "line": line.text}) + "\n" if options.json else f"{line.text}\n")
    return 0


def _lines(path: str, number: int, wanted: Wanted) -> Iterator[Line]:
    """The wanted lines of a file, none earlier than the one before: a clock that was set back moves no line."""
    latest = FIRST
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            time = _TIME.search(text)
            place = _PARTITION.search(text) or _NEWER_PARTITION.search(text)
            if time is None or place is None:
                continue
            line = Line(time[0], number, place[1], int(place[2]), text.rstrip("\r\n"))
            if wanted.lets_pass(line):
                latest = max(latest, line.time)
                yield line._replace(time=latest)


def _named(logs: Sequence[str]) -> list[str]:
    parts = ([each] if os.path.exists(each) else each.split(",") for each in logs)
    return [path for some in parts for path in some if path]


def _matching(pattern: str) -> list[str]:
    directory, _, name = pattern.rpartition("/")
    directory = directory or "."
    try:
        expression = re.compile(name)
        found = sorted(each for each in os.listdir(directory) if expression.search(each))
    except re.error as error:
        raise ToolError(f"--logs-regex {name!r} is no regular expression: {error}") from error
    except OSError as error:
        raise ToolError(f"cannot read {directory}: {error.strerror}") from error
    if not found:
        raise ToolError(f"no file in {directory} matches {name!r}")
    return [f"{directory}/{each}" for each in found]


def _partitions(text: str | None) -> frozenset[int]:
    if not text:
        return frozenset()
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise WrongUsage(f"--partitions {text!r} is not of the form 0,1,2")
    if len(set(numbers)) < len(numbers):
        raise ToolError(f"--partitions {text!r} names one more than once")
    return frozenset(map(int, numbers))


def _time(text: str, rest: str) -> str:
    """A time of Kafka's form; what is left out counts as the earliest or the latest that it may be."""
    text = text.strip().strip('"').strip()
    if text in (FIRST, LAST):
        return text
    if not _PART_OF_TIME.fullmatch(text):
        raise ToolError(f"{text!r} is no time: write 2026-11-18 17:00:00,000, or its beginning from the left")
    text = text.replace("T", " ").replace(".", ",")
    full = FIRST if rest == "0" else "9999-99-99 23:59:59,999"
    return text + full[len(text) :]


COMMAND = Command(
    "state-changes",
    "One history of leaders and replicas, out of the state-change logs of several brokers.",
    [
        Action(
            "merge",
            "merge logs by time",
            _merge,
            _options,
            [
                "merge broker-1.log broker-2.log --topic visits --partitions 0,1",
                "merge --logs-regex 'logs/state-change.*' --start-time '2026-11-18 17:00'",
            ],
            noun="logs",
        )
    ],
    is_local=True,
)
