"""Standings of groups: their state, their members, and how far behind they are, as rows of tables."""

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from moldau.cli.group_queries import Group, Member, assignment_shown, committed_offsets
from moldau.cli.partition_queries import Partition, ends_of
from moldau.cli.record_times import times_ms
from moldau.cli.wire import WireCluster

OFFSET_COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "leaderEpoch": "LEADER-EPOCH",
    "currentOffset": "CURRENT-OFFSET",
    "logEndOffset": "LOG-END-OFFSET",
    "lag": "LAG",
    "consumerId": "CONSUMER-ID",
    "host": "HOST",
    "clientId": "CLIENT-ID",
}
MEMBER_COLUMNS = {
    "group": "GROUP",
    "consumerId": "CONSUMER-ID",
    "groupInstanceId": "GROUP-INSTANCE-ID",
    "host": "HOST",
    "clientId": "CLIENT-ID",
    "partitions": "#PARTITIONS",
    "currentEpoch": "CURRENT-EPOCH",
    "currentAssignment": "CURRENT-ASSIGNMENT",
    "targetEpoch": "TARGET-EPOCH",
    "targetAssignment": "TARGET-ASSIGNMENT",
}
STATE_COLUMNS = {
    "group": "GROUP",
    "coordinator": "COORDINATOR (ID)",
    "assignmentStrategy": "ASSIGNMENT-STRATEGY",
    "state": "STATE",
    "groupEpoch": "GROUP-EPOCH",
    "targetAssignmentEpoch": "TARGET-ASSIGNMENT-EPOCH",
    "members": "#MEMBERS",
}
VERBOSE_COLUMNS = (
    "leaderEpoch",
    "currentEpoch",
    "currentAssignment",
    "targetEpoch",
    "targetAssignment",
    "groupEpoch",
    "targetAssignmentEpoch",
)
LAG_COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "partition": "PARTITION",
    "currentOffset": "CURRENT-OFFSET",
    "logEndOffset": "LOG-END-OFFSET",
    "lag": "LAG",
    "timeLagSeconds": "TIME-LAG-SECONDS",
}
SUMMARY_COLUMNS = {
    "group": "GROUP",
    "partitions": "PARTITIONS",
    "lag": "LAG",
    "timeLagSeconds": "TIME-LAG-SECONDS",
}
MS_PER_SECOND = 1000


class Standing(NamedTuple):
    """Position of a group in a partition."""

    group: Group
    partition: Partition
    offset: int | None
    leader_epoch: int | None
    end: int | None
    """None where the partition is gone."""
    owner: Member | None

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)


def state_row(group: Group) -> dict[str, Any]:
    return {
        "group": group.group,
        "coordinator": f"{group.coordinator_address} ({group.coordinator})",
        "assignmentStrategy": group.assignor,
        "state": group.state,
        "type": group.type,
        "groupEpoch": group.epoch,
        "targetAssignmentEpoch": group.assignment_epoch,
        "members": len(group.members),
    }


def member_row(group: Group, member: Member) -> dict[str, Any]:
    return {
        "group": group.group,
        "consumerId": member.member_id,
        "groupInstanceId": member.instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "partitions": len(member.partitions),
        "currentEpoch": member.epoch,
        "currentAssignment": assignment_shown(member.partitions),
        "targetEpoch": group.assignment_epoch,
        "targetAssignment": None if member.target is None else assignment_shown(member.target),
    }


def standings(cluster: WireCluster, group: Group) -> list[Standing]:
    """Positions of the group: of every partition with an offset or an owner."""
    committed = committed_offsets(cluster, group.group)
    owners = {partition: member for member in group.members for partition in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = ends_of(cluster, partitions)
    return [
        Standing(
            group,
            each,
            committed[each].offset if each in committed else None,
            committed[each].leader_epoch if each in committed else None,
            ends.get(each),
            owners.get(each),
        )
        for each in partitions
    ]


def offset_rows(cluster: WireCluster, groups: Iterable[Group]) -> list[dict[str, Any]]:
    rows = []
    for each in (standing for group in groups for standing in standings(cluster, group)):
        owner = each.owner
        rows.append(
            {
                "group": each.group.group,
                "topic": each.partition[0],
                "partition": each.partition[1],
                "leaderEpoch": each.leader_epoch,
                "currentOffset": each.offset,
                "logEndOffset": each.end,
                "lag": each.lag,
                "consumerId": owner and owner.member_id,
                "host": owner and owner.host,
                "clientId": owner and owner.client_id,
            }
        )
    return rows


def ages(options: argparse.Namespace, standings: Iterable[Standing]) -> dict[tuple[str, Partition], float]:
    """Seconds since the next record of each group and partition was written, of those that are behind."""
    now_ms = time.time_ns() // 1_000_000
    by_group: dict[str, dict[Partition, int]] = {}
    for each in standings:
        if each.lag and each.offset is not None:
            by_group.setdefault(each.group.group, {})[each.partition] = each.offset
    return {
        (group, partition): max(0, now_ms - at_ms) / MS_PER_SECOND
        for group, positions in by_group.items()
        for partition, at_ms in times_ms(options, positions).items()
    }


def lag_row(each: Standing, ages: dict[tuple[str, Partition], float], no_time: bool) -> dict[str, Any]:
    age = 0.0 if each.lag == 0 and not no_time else ages.get((each.group.group, each.partition))
    return {
        "group": each.group.group,
        "topic": each.partition[0],
        "partition": each.partition[1],
        "currentOffset": each.offset,
        "logEndOffset": each.end,
        "lag": each.lag,
        "timeLagSeconds": age,
    }


def summary(names: Iterable[str], rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each group: all records that it has not read, and the age of the oldest of them."""
    found = []
    for name in names:
        own = [row for row in rows if row["group"] == name]
        ages = [row["timeLagSeconds"] for row in own if row["timeLagSeconds"] is not None]
        found.append(
            {
                "group": name,
                "partitions": len(own),
                "lag": sum(row["lag"] or 0 for row in own),
                "timeLagSeconds": max(ages, default=None),
            }
        )
    return found
