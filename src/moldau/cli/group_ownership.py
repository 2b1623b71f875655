"""Ownership of a group's partitions: whether each one of the topics that it has subscribed to has exactly one owner."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from moldau.cli.failures import ToolError
from moldau.cli.group_queries import Group
from moldau.cli.partition_queries import Partition, partitions_of
from moldau.cli.wire import WireCluster

VERIFY_COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "owners": "OWNERS",
    "problem": "PROBLEM",
}


def subscribed(cluster: WireCluster, group: Group) -> list[Partition]:
    """All partitions of the topics that members have subscribed to, or own."""
    topics = {topic for member in group.members for topic in member.topics}
    topics |= {topic for member in group.members for topic, _ in member.partitions}
    patterns = {member.pattern for member in group.members if member.pattern}
    if not patterns:
        return list(partitions_of(cluster, topics))
    try:
        expressions = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ToolError(
            f"group {group.group!r} has subscribed to an expression that is not read here: {error}"
        ) from error
    everything = partitions_of(cluster)
    return [
        each for each in everything if each[0] in topics or any(matches.fullmatch(each[0]) for matches in expressions)
    ]


def ownership(group: Group, partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    """A row for each partition; `problem` is None where exactly one member owns it."""
    if not group.members:
        return [_ownership_row(group, None, [], f"the group has no members: it is {group.state}")]
    owners: dict[Partition, list[str]] = {each: [] for each in partitions}
    strange = []
    for member in group.members:
        for each in member.partitions:
            if each in owners:
                owners[each].append(member.member_id)
            else:
                strange.append(_ownership_row(group, each, [member.member_id], "there is no such partition"))
    passing = "" if group.state == "Stable" else f" while the group is {group.state}"
    rows = []
    for each, names in owners.items():
        problem = None if len(names) == 1 else f"{'no' if not names else len(names)} owners{passing}"
        rows.append(_ownership_row(group, each, names, problem))
    return rows + strange


def _ownership_row(group: Group, each: Partition | None, owners: list[str], problem: str | None) -> dict[str, Any]:
    topic, index = each if each is not None else (None, None)
    return {"group": group.group, "topic": topic, "partition": index, "owners": owners, "problem": problem}


def all_owned(group: Group, partitions: Sequence[Partition]) -> str:
    topics = len({topic for topic, _ in partitions})
    return (
        f"Group {group.group}: {len(partitions)} partitions of {topics} topics, "
        f"each owned by one of {len(group.members)} members."
    )
