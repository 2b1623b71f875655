"""Questions about partitions: which there are, who leads them, and where their logs begin and end."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.refusals import Refused, check, patiently
from moldau.cli.wire import WireCluster
from moldau.core.arguments import likely
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Partition = tuple[str, int]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
LIST_OFFSETS_KNOWS_MAX_TIMESTAMP = 7  # KIP-734
UNKNOWN_OFFSET = -1


class PartitionState(NamedTuple):
    """State of a partition, as the brokers tell it."""

    topic: str
    partition_index: int
    leader: int
    """-1 if there is none."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_internal: bool

    @property
    def partition(self) -> Partition:
        return self.topic, self.partition_index


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Partitions, gathered by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(set(partitions)):
        found.setdefault(topic, []).append(index)
    return found


def shown(partition: Partition) -> str:
    """The partition, as Kafka's tools write it."""
    return f"{partition[0]}-{partition[1]}"


def partitions_of(cluster: WireCluster, topics: Iterable[str] | None = None) -> dict[Partition, PartitionState]:
    """All partitions of these topics, of every topic for None. A topic that does not exist has none."""
    wanted = None if topics is None else sorted(set(topics))
    if wanted == []:
        return {}
    found = {}
    for told in cluster.metadata(wanted):
        if told.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            continue
        check(f"topic {told.name!r} is not described", told.error_code)
        for each in told.partitions:
            state = PartitionState(
                told.name or "",
                each.partition_index,
                each.leader_id,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                told.is_internal,
            )
            found[state.partition] = state
    return dict(sorted(found.items()))


def existing_partitions(cluster: WireCluster, topics: Sequence[str]) -> dict[Partition, PartitionState]:
    """All partitions of these topics, each of which has to exist."""
    found = partitions_of(cluster, topics)
    for topic in topics:
        if not any(each == topic for each, _ in found):
            meant = likely(topic, {each for each, _ in partitions_of(cluster)})
            raise ToolError(f"topic {topic!r} does not exist{meant or ': `moldau topics list` shows those that do'}")
    return found


def matching_partitions(
    cluster: WireCluster, pattern: str | None, exclude_internal: bool = False
) -> dict[Partition, PartitionState]:
    """Partitions of the topics that a name, or a regular expression, or several with commas between them, matches."""
    everything = partitions_of(cluster)
    if pattern is None:
        expression = re.compile(".*")
    elif any(topic == pattern for topic, _ in everything):
        expression = re.compile(re.escape(pattern))
    else:
        try:
            expression = re.compile(pattern.replace(",", "|").replace(" ", ""))
        except re.error as error:
            raise ToolError(f"{pattern!r} is neither a topic nor a regular expression: {error}") from error
    found = {each: state for each, state in everything.items() if expression.fullmatch(each[0])}
    if not found and pattern is not None:
        raise ToolError(f"no topic matches {pattern!r}: `moldau topics list` shows those that there are")
    return {each: state for each, state in found.items() if not (exclude_internal and state.is_internal)}


def topic_partition_words(words: Iterable[str]) -> dict[str, list[int] | None]:
    """The partitions that words such as `visits:0,1` name by topic; None for all, from `visits`."""
    found: dict[str, list[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        if not topic or (colon and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", numbers)):
            raise ToolError(f"--topic {word!r} is neither TOPIC nor TOPIC:0,1,2")
        named = [int(each) for each in numbers.split(",")] if colon else None
        before = found.get(topic, [])
        found[topic] = None if named is None or before is None else [*before, *named]
    return found


def named_partitions(cluster: WireCluster, words: Iterable[str]) -> list[Partition]:
    """The partitions that words such as `visits:0,1` name, each of which has to exist."""
    named = topic_partition_words(words)
    present = existing_partitions(cluster, list(named))
    found: list[Partition] = []
    for topic, indexes in named.items():
        there = [index for each, index in present if each == topic]
        missing = [index for index in indexes or [] if index not in there]
        if missing:
            raise ToolError(f"topic {topic!r} has no partition {missing[0]}: it has {len(there)}, counted from 0")
        found += [(topic, index) for index in (there if indexes is None else indexes)]
    return sorted(set(found))


def offsets_at(cluster: WireCluster, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
    """The offset of each partition at a time in milliseconds, or at EARLIEST, LATEST or MAX_TIMESTAMP.

    None where the log has no record as young as that. A partition that does not exist is left out.
    """
    return patiently(lambda: _offsets_at(cluster, times))


def _offsets_at(cluster: WireCluster, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
    present = partitions_of(cluster, {topic for topic, _ in times})
    by_leader: dict[int, list[Partition]] = {}
    for each in times:
        if each in present:
            if present[each].leader < 0:
                raise Refused(f"{shown(each)} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
            by_leader.setdefault(present[each].leader, []).append(each)
    found: dict[Partition, int | None] = {}
    for leader, partitions in by_leader.items():
        found.update(_told_by(cluster, leader, {each: times[each] for each in partitions}))
    return dict(sorted(found.items()))


def _told_by(cluster: WireCluster, leader: int, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
    connection = cluster.broker(leader)
    if MAX_TIMESTAMP in times.values() and not connection.serves(2, LIST_OFFSETS_KNOWS_MAX_TIMESTAMP):
        raise ToolError(f"the broker at {connection.address} knows no --time -3: it needs Kafka 3.0 or newer")
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=times[topic, index]) for index in indexes
                ],
            )
            for topic, indexes in by_topic(times).items()
        ],
    )
    found: dict[Partition, int | None] = {}
    for told in connection.request(request, ListOffsetsResponse).topics:
        for each in told.partitions:
            check(f"the offsets of {told.name}-{each.partition_index} are not told", each.error_code)
            found[told.name, each.partition_index] = None if each.offset == UNKNOWN_OFFSET else each.offset
    return found


def ends_of(cluster: WireCluster, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The high watermark of each partition that exists."""
    found = offsets_at(cluster, dict.fromkeys(partitions, LATEST))
    return {each: offset for each, offset in found.items() if offset is not None}


def starts_of(cluster: WireCluster, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """The first offset of each partition that exists."""
    found = offsets_at(cluster, dict.fromkeys(partitions, EARLIEST))
    return {each: offset for each, offset in found.items() if offset is not None}
