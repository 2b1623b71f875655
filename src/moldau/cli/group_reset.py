"""`moldau groups reset`: the new offsets are shown first, and committed with --execute only, as in Kafka's tool."""

import argparse
import sys
from typing import Any

from moldau.cli.failures import EXIT_FAILED, ToolError, WrongUsage
from moldau.cli.group_names import add_group_options, counted, named_groups
from moldau.cli.group_queries import commit_offsets, committed_offsets, ensure_inactive
from moldau.cli.offset_files import by_group, lines_of, parsed, read_text, written
from moldau.cli.offset_targets import Offsets, add_scenarios, targets
from moldau.cli.output import confirm, show_table
from moldau.cli.partition_queries import Partition, ends_of, named_partitions, shown, starts_of
from moldau.cli.wire import WireCluster
from moldau.cli.wire_places import wire_cluster

COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "newOffset": "NEW-OFFSET",
    "currentOffset": "CURRENT-OFFSET",
}


def add_reset_options(made: argparse.ArgumentParser) -> None:
    """Add the options of the action."""
    add_group_options(made)
    scope = made.add_mutually_exclusive_group()
    scope.add_argument("--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="the topic; may be repeated")
    scope.add_argument("--all-topics", action="store_true", help="every partition that has an offset")
    add_scenarios(made)
    mode = made.add_mutually_exclusive_group()
    mode.add_argument("--execute", action="store_true", help="do it, rather than show what would be done")
    mode.add_argument("--dry-run", action="store_true", help="show what would be done (the default)")
    made.add_argument("--export", action="store_true", help="print the offsets as CSV, for --from-file")


def reset(options: argparse.Namespace) -> int:
    """Do the action; returns the exit code."""
    if not (options.topic or options.all_topics or options.from_file):
        raise WrongUsage("say which partitions: --topic TOPIC, --topic TOPIC:0,1 or --all-topics")
    with wire_cluster(options) as cluster:
        groups, refused = _inactive(cluster, named_groups(cluster, options))
        current = {
            group: {each: at.offset for each, at in committed_offsets(cluster, group).items()} for group in groups
        }
        wanted = _wanted(cluster, options, current)
        _show(options, wanted, current)
        if options.execute:
            if wanted:
                confirm(options, f"Set {sum(map(len, wanted.values()))} offsets of {counted(list(wanted))}?")
            for group, offsets in wanted.items():
                commit_offsets(cluster, group, offsets)
        elif not options.dry_run:
            sys.stderr.write("Nothing was changed: --execute does it.\n")
    return EXIT_FAILED if refused else 0


def _inactive(cluster: WireCluster, groups: list[str]) -> tuple[list[str], list[str]]:
    """The groups that may be reset, and those that may not: of several, the others are reset."""
    ready, refused = [], []
    for group in groups:
        try:
            ensure_inactive(cluster, group)
            ready.append(group)
        except ToolError as error:
            if len(groups) == 1:
                raise
            sys.stderr.write(f"error: {error}\n")
            refused.append(group)
    return ready, refused


def _wanted(
    cluster: WireCluster, options: argparse.Namespace, current: dict[str, dict[Partition, int]]
) -> dict[str, Offsets]:
    """New offsets by group."""
    if options.from_file:
        offsets = by_group(parsed(read_text(options.from_file), options.from_file), list(current))
        return {group: _in_range(cluster, each) for group, each in offsets.items() if group in current}
    named = [] if options.all_topics else named_partitions(cluster, options.topic)
    found = {}
    for group, present in current.items():
        partitions = named or sorted(present)
        if not partitions:
            raise ToolError(f"group {group!r} has committed no offsets: name a topic with --topic")
        found[group] = targets(cluster, options, partitions, present)
    return found


def _in_range(cluster: WireCluster, offsets: Offsets) -> Offsets:
    """Offsets that the logs have; ToolError where there is no such partition."""
    starts, ends = starts_of(cluster, offsets), ends_of(cluster, offsets)
    for each in offsets:
        if each not in ends:
            raise ToolError(f"there is no partition {shown(each)}: `moldau topics describe {each[0]}`")
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in offsets.items()}


def _show(options: argparse.Namespace, wanted: dict[str, Offsets], current: dict[str, dict[Partition, int]]) -> None:
    if options.export and not options.json:
        sys.stdout.write(written(lines_of(wanted), "csv", with_group=len(options.group) != 1))
        return
    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "topic": topic,
            "partition": index,
            "newOffset": offset,
            "currentOffset": current[group].get((topic, index)),
        }
        for group, offsets in wanted.items()
        for (topic, index), offset in offsets.items()
    ]
    show_table(options, rows, COLUMNS, "there is nothing to reset")
