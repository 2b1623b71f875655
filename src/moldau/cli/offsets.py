"""`moldau offsets get|export|import|verify`: offsets of logs (kafka-get-offsets), and those that groups have stored."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moldau.cli.actions import Action, Command
from moldau.cli.common import add_bygone, whole
from moldau.cli.failures import EXIT_FAILED, ToolError, WrongUsage
from moldau.cli.group_names import add_group_options, counted, named_groups
from moldau.cli.group_queries import commit_offsets, committed_offsets, describe_group, ensure_inactive, list_groups
from moldau.cli.offset_files import FORMATS, STANDARD, by_group, lines_of, parsed, read_text, write_text, written
from moldau.cli.output import confirm, note, show, show_table
from moldau.cli.partition_queries import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Partition,
    ends_of,
    matching_partitions,
    offsets_at,
    shown,
    starts_of,
)
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster

TIMES = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
TIERED = ("earliest-local", "latest-tiered", "earliest-pending-upload", "-4", "-5", "-6")
IMPORT_COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "newOffset": "NEW-OFFSET",
    "currentOffset": "CURRENT-OFFSET",
}
VERIFY_COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "offset": "OFFSET",
    "logStartOffset": "LOG-START-OFFSET",
    "logEndOffset": "LOG-END-OFFSET",
    "problem": "PROBLEM",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _get_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--topic", help="a name, or a,b,c, or a regular expression (default: all topics)")
    made.add_argument("--partitions", metavar="0,1", help="only these partitions")
    made.add_argument("--topic-partitions", metavar="TOPIC:0-2,...", help="topics with their partitions")
    made.add_argument(
        "--time",
        type=_time,
        default=LATEST,
        metavar="TIME",
        help="-1 or latest, -2 or earliest, -3 or max-timestamp, or milliseconds since 1970 (default: latest)",
    )
    # Before 0.11 the tool told several offsets before a time; the newest of them is told here.
    add_bygone(made, values=["--offsets", "--max-wait-ms"])
    made.add_argument("--exclude-internal-topics", action="store_true", help="leave out internal topics")


def _time(text: str) -> int:
    if text.lower() in TIERED:
        raise argparse.ArgumentTypeError(f"{text} asks for tiered storage, which is not looked at here")
    if text.lower() in TIMES:
        return TIMES[text.lower()]
    try:
        return whole(64, MAX_TIMESTAMP)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, nor one of {', '.join(TIMES)}") from error


def _export_options(made: argparse.ArgumentParser) -> None:
    add_group_options(made)
    made.add_argument(
        "--file", "--output-file", default=STANDARD, metavar="FILE", help="where to (default: -, standard output)"
    )
    made.add_argument(
        "--format", choices=FORMATS, help="json (the default), csv (kafka-consumer-groups), zookeeper (ExportZkOffsets)"
    )


def _import_options(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--file", "--input-file", metavar="FILE", help="a file in any form of the export; - is standard input"
    )
    add_group_options(made)


# --- the actions ---


def _get(options: argparse.Namespace) -> int:
    if options.topic_partitions and (options.topic or options.partitions):
        raise WrongUsage("--topic-partitions excludes --topic and --partitions")
    wanted = _numbers(options.partitions)
    with wire_cluster(options) as cluster:
        if options.topic_partitions:
            found = _filtered(cluster, options)
        else:
            present = matching_partitions(cluster, options.topic, options.exclude_internal_topics)
            found = [each for each in present if wanted is None or each[1] in wanted]
        if not found:
            raise ToolError("no partition matches: `moldau topics describe` shows those that there are")
        offsets = offsets_at(cluster, dict.fromkeys(found, options.time))
    rows = [{"topic": topic, "partition": index, "offset": at} for (topic, index), at in offsets.items()]
    show(options, rows, [f"{topic}:{index}:{at}" for (topic, index), at in offsets.items() if at is not None])
    return 0


def _numbers(text: str | None) -> set[int] | None:
    if text is None:
        return None
    if not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", text):
        raise WrongUsage(f"--partitions {text!r} is not of the form 0,1,2")
    return {int(each) for each in text.split(",")}


def _filtered(cluster: WireCluster, options: argparse.Namespace) -> list[Partition]:
    """The partitions that --topic-partitions names: `TOPIC`, `TOPIC:1`, `TOPIC:0-2` (without 2), `TOPIC:3-`, `:0`."""
    present = matching_partitions(cluster, None, options.exclude_internal_topics)
    rules = [_rule(word.strip()) for word in options.topic_partitions.split(",")]
    return [each for each in present if any(rule(each) for rule in rules)]


def _rule(word: str) -> Callable[[Partition], bool]:
    topic, _, numbers = word.partition(":")
    found = re.fullmatch(r"(\d{0,9})(-?)(\d{0,9})", numbers)
    if found is None:
        raise WrongUsage(f"--topic-partitions {word!r} is not of the form TOPIC:0, TOPIC:0-2 or TOPIC:1-")
    first, dash, behind = found.groups()
    lowest = int(first or 0)
    end = int(behind) if behind else (1 << 31 if dash or not first else lowest + 1)
    try:
        expression = re.compile(topic or ".*")
    except re.error as error:
        raise ToolError(f"{topic!r} is neither a topic nor a regular expression: {error}") from error
    return lambda each: expression.fullmatch(each[0]) is not None and lowest <= each[1] < end


def _export(options: argparse.Namespace) -> int:
    form = options.format or "json"
    if options.json and form != "json":
        raise WrongUsage("--json and --format exclude each other")
    with wire_cluster(options) as cluster:
        groups = named_groups(cluster, options)
        offsets = {
            group: {each: at.offset for each, at in committed_offsets(cluster, group).items()} for group in groups
        }
    if not any(offsets.values()):
        raise ToolError(
            f"nothing to export, {counted(groups)} has committed no offsets: `moldau groups list` shows all"
        )
    for group, found in offsets.items():
        if not found:
            note(f"group {group} has committed no offsets")
    write_text(options.file, written(lines_of(offsets), form, with_group=len(groups) != 1))
    if options.file != STANDARD:
        note(f"{sum(map(len, offsets.values()))} offsets of {counted(groups)} are in {options.file}.")
    return 0


def _import(options: argparse.Namespace) -> int:
    offsets = by_group(parsed(read_text(options.file), options.file), options.group)
    if not offsets:
        raise ToolError(f"{options.file} has no offsets" + (f" of {counted(options.group)}" if options.group else ""))
    with wire_cluster(options) as cluster:
        current = {}
        for group, wanted in offsets.items():
            ensure_inactive(cluster, group)
            _ensure_there(cluster, wanted)
            current[group] = {each: at.offset for each, at in committed_offsets(cluster, group).items()}
        rows = [
            {
                "group": each.group,
                "topic": each.topic,
                "partition": each.partition,
                "newOffset": each.offset,
                "currentOffset": current[each.group or ""].get((each.topic, each.partition)),
            }
            for each in lines_of(offsets)
        ]
        show_table(options, rows, IMPORT_COLUMNS, "")
        if options.dry_run:
            return 0
        confirm(options, f"Commit {len(rows)} offsets for {counted(list(offsets))}?")
        for group, wanted in offsets.items():
            commit_offsets(cluster, group, wanted)
    return 0


def _ensure_there(cluster: WireCluster, offsets: Mapping[Partition, int]) -> None:
    """Raise ToolError where an offset is not inside a log: nothing is changed then."""
    starts, ends = starts_of(cluster, offsets), ends_of(cluster, offsets)
    for each, offset in offsets.items():
        problem = _problem(offset, starts.get(each), ends.get(each))
        if problem:
            raise ToolError(f"nothing was imported: offset {offset} of {shown(each)}: {problem}")


def _verify(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        names = named_groups(cluster, options) if options.group else [each.group for each in list_groups(cluster)]
        found = {name: _verified(cluster, name) for name in names}
        for name in names:
            if options.group and not found[name]:
                describe_group(cluster, name)  # a mistyped name has no offset that is wrong
        rows = [row for name in names for row in found[name]]
    wrong = [row for row in rows if row["problem"]]
    if options.json:
        show_table(options, rows, VERIFY_COLUMNS, "")
    elif wrong:
        show_table(options, wrong, VERIFY_COLUMNS, "")
    else:
        show(options, None, [f"{len(rows)} committed offsets of {len(names)} groups are inside their logs."])
    return EXIT_FAILED if wrong else 0


def _verified(cluster: WireCluster, group: str) -> list[dict[str, Any]]:
    committed = committed_offsets(cluster, group)
    starts, ends = starts_of(cluster, committed), ends_of(cluster, committed)
    return [
        {
            "group": group,
            "topic": each[0],
            "partition": each[1],
            "offset": at.offset,
            "logStartOffset": starts.get(each),
            "logEndOffset": ends.get(each),
            "problem": _problem(at.offset, starts.get(each), ends.get(each)),
        }
        for each, at in committed.items()
    ]


def _problem(offset: int, start: int | None, end: int | None) -> str | None:
    """The reason for which a consumer that goes on here would be told OFFSET_OUT_OF_RANGE; None if it would not."""
    if start is None or end is None:
        return "there is no such partition"
    if offset < start:
        return f"out of range: {start - offset} records before it are gone"
    if offset > end:
        return f"out of range: {offset - end} past the end of the log"
    return None


COMMAND = Command(
    "offsets",
    "Show, export, import and verify offsets.",
    [
        Action(
            "get",
            "first, last or timed offsets of partitions",
            _get,
            _get_options,
            [
                "get visits",
                "get visits --time earliest --partitions 0,1",
                "get visits --time 1767225600000",
                "get --topic-partitions visits:0-2,orders --exclude-internal-topics",
            ],
            noun="topic",
        ),
        Action(
            "export",
            "write the committed offsets of groups to a file",
            _export,
            _export_options,
            ["export visits-report --file offsets.json", "export --all-groups --format csv"],
            noun="group",
        ),
        Action(
            "import",
            "commit the offsets of a file",
            _import,
            _import_options,
            ["import offsets.json --dry-run", "import offsets.csv --group visits-report --yes"],
            noun="file",
            required=True,
            destroys=True,
            tries=True,
        ),
        Action(
            "verify",
            "whether committed offsets are inside their logs",
            _verify,
            add_group_options,
            ["verify", "verify visits-report --json"],
            noun="group",
        ),
    ],
)
