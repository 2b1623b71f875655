"""`moldau groups describe NAME`: the work of kafka-consumer-groups, whose options are understood as well.

`lag` tells how far a group is behind, in records and in time: the age of the record that it will read next. This record
is read for it (`record_times.py`). A group that has read everything is 0 seconds behind. `verify` tells whether every
partition of the topics that a group has subscribed to is owned by exactly one member.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from moldau.cli.actions import Action, Command
from moldau.cli.failures import EXIT_FAILED, ToolError, WrongUsage
from moldau.cli.group_names import add_group_options, add_kafkas_options, counted, named_groups
from moldau.cli.group_ownership import VERIFY_COLUMNS, all_owned, ownership, subscribed
from moldau.cli.group_queries import (
    STATES,
    TYPES,
    Group,
    committed_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
)
from moldau.cli.group_reset import add_reset_options, reset
from moldau.cli.group_standings import (
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    STATE_COLUMNS,
    SUMMARY_COLUMNS,
    VERBOSE_COLUMNS,
    ages,
    lag_row,
    member_row,
    offset_rows,
    standings,
    state_row,
    summary,
)
from moldau.cli.output import confirm, note, show, show_table
from moldau.cli.partition_queries import Partition, topic_partition_words
from moldau.cli.refusals import error_name
from moldau.cli.wire_places import wire_cluster
from moldau.protocol.errors import ErrorCode


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    return COMMAND.run(argv)


# --- options ---


def _list_options(made: argparse.ArgumentParser) -> None:
    add_kafkas_options(made)
    made.add_argument("--state", nargs="?", const="", metavar="STATE,...", help="show states, or only groups in these")
    made.add_argument(
        "--type", "--group-type", nargs="?", const="", metavar="TYPE,...", help="show types, or only groups of these"
    )
    made.add_argument("--consumer", action="store_true", help=argparse.SUPPRESS)  # kafka-groups: what is listed anyway
    made.add_argument("--protocol", metavar="NAME", help=argparse.SUPPRESS)
    for kind in ("share", "streams"):
        made.add_argument(f"--{kind}", action="store_true", help=argparse.SUPPRESS)


def _verbose_option(made: argparse.ArgumentParser) -> None:
    made.add_argument("--verbose", action="store_true", help="epochs and assignments, too")


def _describe_options(made: argparse.ArgumentParser) -> None:
    add_group_options(made)
    what = made.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag of each partition (the default)")
    what.add_argument("--members", action="store_true", help="members and their partitions")
    what.add_argument("--state", action="store_true", help="state, coordinator and assignor")
    _verbose_option(made)


def _members_options(made: argparse.ArgumentParser) -> None:
    add_group_options(made)
    _verbose_option(made)


def _lag_options(made: argparse.ArgumentParser) -> None:
    add_group_options(made)
    made.add_argument("--summary", action="store_true", help="one line for each group")
    made.add_argument("--no-time", action="store_true", help="read no records: only the lag in records")


def _delete_offsets_options(made: argparse.ArgumentParser) -> None:
    add_group_options(made)
    made.add_argument(
        "--topic", action="append", default=[], required=True, metavar="TOPIC[:0,1]", help="the topic; may be repeated"
    )


# --- the actions ---


def _list(options: argparse.Namespace) -> int:
    for kind in ("share", "streams"):
        if getattr(options, kind):
            raise ToolError(f"{kind} groups are not listed here: use Kafka's own kafka-{kind}-groups.sh")
    if options.protocol not in (None, "consumer"):
        raise ToolError(f"groups of the protocol {options.protocol!r} are not listed here: they are no consumers")
    states = _chosen(options.state, STATES, "state")
    types = _chosen(options.type, TYPES, "type")
    with wire_cluster(options) as cluster:
        found = list_groups(cluster, states, types)
    columns = {"group": "GROUP"}
    if options.type is not None:
        columns["type"] = "TYPE"
    if options.state is not None:
        columns["state"] = "STATE"
    rows = [each._asdict() for each in found]
    if len(columns) == 1:
        show(options, rows, [each.group for each in found])
    else:
        show_table(options, rows, columns, "there are no such groups")
    return 0


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """The names that an option lists, in the spelling of `known`."""
    spelled = {each.lower(): each for each in known}
    found = []
    for word in (text or "").split(","):
        name = word.strip().lower()
        if name and name not in spelled:
            raise WrongUsage(f"there is no {what} {word.strip()!r}: say {', '.join(known)}")
        if name:
            found.append(spelled[name])
    return found


def _describe(options: argparse.Namespace) -> int:
    if options.members:
        return _members(options)
    with wire_cluster(options) as cluster:
        groups = [describe_group(cluster, name) for name in named_groups(cluster, options)]
        rows = [state_row(each) for each in groups] if options.state else offset_rows(cluster, groups)
    _say_who_is_empty(groups)
    columns = STATE_COLUMNS if options.state else OFFSET_COLUMNS
    show_table(options, rows, _columns(columns, options, rows), "these groups have neither members nor offsets")
    return 0


def _members(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        groups = [describe_group(cluster, name) for name in named_groups(cluster, options)]
    _say_who_is_empty(groups)
    rows = [member_row(group, member) for group in groups for member in group.members]
    show_table(options, rows, _columns(MEMBER_COLUMNS, options, rows), "these groups have no members")
    return 0


def _lag(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        names = named_groups(cluster, options) if options.group else [each.group for each in list_groups(cluster)]
        found = [each for name in names for each in standings(cluster, describe_group(cluster, name))]
    seconds = {} if options.no_time else ages(options, found)
    rows = [lag_row(each, seconds, options.no_time) for each in found if each.offset is not None]
    if options.summary:
        rows = summary(names, rows)
    show_table(
        options, rows, SUMMARY_COLUMNS if options.summary else LAG_COLUMNS, "these groups have committed no offsets"
    )
    return 0


def _delete(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        names = named_groups(cluster, options)
        for name in names:
            group = describe_group(cluster, name)
            if group.is_active:
                raise ToolError(
                    f"Group {name!r} could not be deleted: it is not empty, but {group.state}: stop its consumers first"
                )
        if not options.dry_run:
            confirm(options, f"Delete {counted(names)} with all committed offsets?")
            for name in names:
                delete_group(cluster, name)
    verb = "Would delete" if options.dry_run else "Deleted"
    rows = [{"group": name, "deleted": not options.dry_run} for name in names]
    show(options, rows, [f"{verb} group {name}." for name in names])
    return 0


def _delete_offsets(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        (name, *others) = named_groups(cluster, options)
        if others:
            raise ToolError("one group at a time")
        wanted = topic_partition_words(options.topic)
        present = committed_offsets(cluster, name)
        partitions = [each for each in present if _is_named(each, wanted)]
        missing = [topic for topic in wanted if not any(topic == each for each, _ in partitions)]
        if missing:
            raise ToolError(f"group {name!r} has no offsets of {missing[0]!r}: `moldau groups describe {name}`")
        if options.dry_run:
            codes = dict.fromkeys(partitions, int(ErrorCode.NONE))
        else:
            confirm(options, f"Delete the offsets of group {name} for {', '.join(wanted)}?")
            codes = delete_offsets(cluster, name, partitions)
    rows = [
        {"topic": topic, "partition": index, "status": _status(code, options.dry_run)}
        for (topic, index), code in sorted(codes.items())
    ]
    show_table(options, rows, {"topic": "TOPIC", "partition": "PARTITION", "status": "STATUS"}, "nothing to delete")
    return EXIT_FAILED if any(codes.values()) else 0


def _is_named(partition: Partition, wanted: dict[str, list[int] | None]) -> bool:
    topic, index = partition
    indexes = wanted.get(topic, [])
    return indexes is None or index in indexes


def _status(code: int, is_tried: bool) -> str:
    if code != ErrorCode.NONE:
        return f"Error: {error_name(code)}"
    return "Would be deleted" if is_tried else "Successful"


def _verify(options: argparse.Namespace) -> int:
    with wire_cluster(options) as cluster:
        groups = [describe_group(cluster, name) for name in named_groups(cluster, options)]
        owned = [(group, subscribed(cluster, group)) for group in groups]
    rows = [row for group, partitions in owned for row in ownership(group, partitions)]
    wrong = [row for row in rows if row["problem"]]
    if options.json:
        show_table(options, rows, VERIFY_COLUMNS, "")
    elif wrong:
        show_table(options, wrong, VERIFY_COLUMNS, "")
    else:
        show(options, None, [all_owned(group, partitions) for group, partitions in owned])
    return EXIT_FAILED if wrong else 0


# --- what they are made of ---


def _say_who_is_empty(groups: Iterable[Group]) -> None:
    for each in groups:
        if not each.members:
            note(f"Consumer group '{each.group}' has no active members.")


def _columns(columns: dict[str, str], options: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The columns that are wanted; that of instance ids only where there is one, as in Kafka's tool."""
    left_out = set() if options.verbose else set(VERBOSE_COLUMNS)
    if not any(row.get("groupInstanceId") for row in rows):
        left_out.add("groupInstanceId")
    return {key: heading for key, heading in columns.items() if key not in left_out}


_ONE = ["describe visits-report", "describe visits-report --members --verbose", "describe --all-groups --state"]

COMMAND = Command(
    "groups",
    "List, describe, reset and delete consumer groups.",
    [
        Action(
            "list",
            "names of the groups",
            _list,
            _list_options,
            ["list", "list --state", "list --state Empty,Stable --type consumer", "--list --state Stable"],
            flags=["--list"],
        ),
        Action(
            "describe",
            "offsets, lag and owners of partitions; or members, or state",
            _describe,
            _describe_options,
            [*_ONE, "--describe --group visits-report"],
            noun="group",
            flags=["--describe"],
        ),
        Action(
            "lag",
            "how far groups are behind, in records and in seconds",
            _lag,
            _lag_options,
            ["lag visits-report", "lag --summary", "lag visits-report --no-time --json"],
            noun="group",
        ),
        Action(
            "members",
            "members and their partitions",
            _members,
            _members_options,
            ["members visits-report", "members --all-groups --verbose"],
            noun="group",
        ),
        Action(
            "reset",
            "set the offsets of a group that nobody is in",
            reset,
            add_reset_options,
            [
                "reset visits-report --topic visits --to-earliest",
                "reset visits-report --topic visits:0,1 --shift-by -100 --execute",
                "reset visits-report --all-topics --by-duration PT1H --execute --yes",
                "reset visits-report --all-topics --to-current --export",
                "--reset-offsets --group visits-report --topic visits --to-latest --execute",
            ],
            noun="group",
            flags=["--reset-offsets"],
            destroys=True,
        ),
        Action(
            "delete",
            "delete groups that nobody is in, with their offsets",
            _delete,
            add_group_options,
            ["delete visits-report", "delete visits-report --dry-run", "--delete --group visits-report"],
            noun="group",
            flags=["--delete"],
            destroys=True,
            tries=True,
        ),
        Action(
            "delete-offsets",
            "delete the offsets that a group has committed for topics",
            _delete_offsets,
            _delete_offsets_options,
            [
                "delete-offsets visits-report --topic visits",
                "delete-offsets visits-report --topic visits:0,1 --dry-run",
                "--delete-offsets --group visits-report --topic visits",
            ],
            noun="group",
            flags=["--delete-offsets"],
            destroys=True,
            tries=True,
        ),
        Action(
            "verify",
            "whether each partition has exactly one owner",
            _verify,
            add_group_options,
            ["verify visits-report", "verify --all-groups --json"],
            noun="group",
        ),
    ],
)
