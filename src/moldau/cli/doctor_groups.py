"""Checks of consumer groups: who is behind and falls further behind, and whose offsets are not in the log any more."""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from moldau.cli.diagnosis import CRITICAL, NOTICE, WARNING, Diagnosis, some
from moldau.cli.doctor_cluster import Cluster
from moldau.cli.wire import WireConnection
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

EARLIEST, LATEST = -2, -1
OFFSET_FETCH_NAMES_TOPICS = 9
OFFSET_FETCH_OF_SEVERAL_GROUPS = 8
OFFSET_FETCH_OF_ALL_TOPICS = 2
LIST_GROUPS_TELLS_STATE = 4
LIVING = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
OFFSET_ERROR = -1

Place = tuple[str, int]


class Group(NamedTuple):
    """A group and its committed offsets."""

    name: str
    state: str
    offsets: Mapping[Place, int]


def check_groups(cluster: Cluster, watch_s: float) -> Iterator[Diagnosis]:
    """Look twice, `watch_s` apart: a lag that grows while nothing is committed is a consumer that does not work."""
    before = _groups(cluster)
    places = {place for group in before.values() for place in group.offsets}
    starts, ends_before = _ends(cluster, places, EARLIEST), _ends(cluster, places, LATEST)
    yield from _out_of_range(before, starts, ends_before)
    yield from _nobody_reads(before, ends_before)
    behind = {name for name, group in before.items() if group.state in LIVING and _lag(group, ends_before)}
    if not behind:
        return
    time.sleep(watch_s)
    after, ends = _groups(cluster), _ends(cluster, places, LATEST)
    growing = [
        name
        for name in sorted(behind & set(after))
        if after[name].offsets == before[name].offsets and _lag(after[name], ends) > _lag(before[name], ends_before)
    ]
    if growing:
        lag = _lag(after[growing[0]], ends)
        what = f"the lag of {len(growing)} groups grows, and nothing was committed for {watch_s:g} s: {some(growing)} "
        what += f"({growing[0]} is {lag} records behind)"
        remedy = f"moldau groups describe {growing[0]}; then look at its members' logs"
        yield Diagnosis(WARNING, "lag-grows", what, remedy, growing)


def _out_of_range(
    groups: Mapping[str, Group], starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[Diagnosis]:
    lost, beyond = [], []
    for group in groups.values():
        for (topic, index), offset in group.offsets.items():
            place = (topic, index)
            if place in starts and offset < starts[place]:
                lost.append(f"{group.name} {topic}-{index} ({offset}, the log begins at {starts[place]})")
            elif place in ends and offset > ends[place]:
                beyond.append(f"{group.name} {topic}-{index} ({offset}, the log ends at {ends[place]})")
    if lost:
        what = f"{len(lost)} committed offsets are before the log: records went before they were read: {some(lost)}"
        remedy = f"{_reset(lost[0])} --to-earliest --execute; and keep records for longer (retention.ms)"
        yield Diagnosis(WARNING, "offsets-before-log", what, remedy, lost)
    if beyond:
        what = f"{len(beyond)} committed offsets are behind the end of the log: records were lost, or a topic was made "
        what += f"anew: {some(beyond)}"
        yield Diagnosis(CRITICAL, "offsets-behind-log", what, f"{_reset(beyond[0])} --to-latest --execute", beyond)


def _reset(subject: str) -> str:
    """The beginning of the command for one partition: the group's other offsets are good."""
    group, place = subject.split()[:2]
    topic, _, index = place.rpartition("-")
    return f"moldau groups reset {group} --topic {topic}:{index}"


def _nobody_reads(groups: Mapping[str, Group], ends: Mapping[Place, int]) -> Iterator[Diagnosis]:
    names = [group.name for group in groups.values() if group.state in ("Empty", "Dead") and _lag(group, ends)]
    if names:
        lag = _lag(groups[names[0]], ends)
        what = f"{len(names)} groups have no member and are behind: {some(names)} ({names[0]}: {lag} records)"
        remedy = f"start its consumers, or: moldau groups delete {names[0]}"
        yield Diagnosis(NOTICE, "groups-without-members", what, remedy, names)


def _lag(group: Group, ends: Mapping[Place, int]) -> int:
    return sum(max(ends[place] - offset, 0) for place, offset in group.offsets.items() if place in ends)


def _groups(cluster: Cluster) -> dict[str, Group]:
    """The groups of all coordinators."""
    found = {}
    for broker in cluster.served:
        connection = cluster.wire.broker(broker)
        for each in connection.request(ListGroupsRequest(), ListGroupsResponse).groups:
            if each.protocol_type in ("consumer", ""):
                offsets = _committed(connection, each.group_id)
                found[each.group_id] = Group(each.group_id, each.group_state, offsets)
    return found


def _committed(connection: WireConnection, group: str) -> dict[Place, int]:
    key = OffsetFetchRequest.api_key
    if connection.serves(key, OFFSET_FETCH_OF_SEVERAL_GROUPS):
        version = (
            OFFSET_FETCH_NAMES_TOPICS
            if connection.serves(key, OFFSET_FETCH_NAMES_TOPICS)
            else OFFSET_FETCH_OF_SEVERAL_GROUPS
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = connection.request(request, OffsetFetchResponse, version)
        topics = [(each.name, each.partitions) for told in answer.groups for each in told.topics]
        rows = [(name, p.partition_index, p.committed_offset) for name, parts in topics for p in parts]
    else:
        request = OffsetFetchRequest(group_id=group, topics=None)
        answer = connection.request(request, OffsetFetchResponse, OFFSET_FETCH_OF_ALL_TOPICS)
        rows = [(t.name, p.partition_index, p.committed_offset) for t in answer.topics for p in t.partitions]
    return {(topic, index): offset for topic, index, offset in rows if offset >= 0}


def _ends(cluster: Cluster, places: set[Place], which: int) -> dict[Place, int]:
    """The first or the next offset of partitions, from their leaders."""
    found: dict[Place, int] = {}
    for broker in cluster.served:
        led = [
            (topic.name or "", partition.partition_index)
            for _, topic, partition in cluster.partitions()
            if partition.leader_id == broker and (topic.name or "", partition.partition_index) in places
        ]
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=which) for each, index in led if each == name
                ],
            )
            for name in sorted({name for name, _ in led})
        ]
        if not topics:
            continue
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        answer = cluster.wire.broker(broker).request(request, ListOffsetsResponse)
        for topic in answer.topics:
            found |= {(topic.name, p.partition_index): p.offset for p in topic.partitions if p.offset != OFFSET_ERROR}
    return found
