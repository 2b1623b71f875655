"""Consumer groups, told by the broker that coordinates them: offsets, lag in records and in seconds, members, status.

The lag in seconds is no estimate: it is the age of the record at the committed offset, which is in this broker's log.
Where the broker has no copy of a partition nothing is told of its lag: a wrong number would be worse than none.
"""

import time
from typing import Final, NamedTuple

from moldau.broker.metrics.exposition import Family, counter, gauge, label_value
from moldau.broker.metrics.observed import Observed
from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.groups.group import Group
from moldau.coordinators.groups.record_tables import OffsetCommitValue
from moldau.coordinators.groups.shard import GroupShard
from moldau.core.group_status import Rule, Window
from moldau.core.ids import TopicPartition
from moldau.log.timestamps import timestamp_at
from moldau.protocol.codec import Steps
from moldau.protocol.errors import ApiError
from moldau.replication.replica import Replica

PARTITIONS_MAX: Final = 50_000
"""Offsets of groups that a scrape tells, and groups without any; those behind that are left out, and counted."""
LOOK_UPS_S_MAX: Final = 0.05
"""Time of a scrape for reading timestamps from logs. What it does not reach waits for the next scrape."""

Key = tuple[str, TopicPartition]


class _Timestamp(NamedTuple):
    """Timestamp of the record that was at a committed offset."""

    offset: int
    timestamp_ms: int


class _Families:
    """Families of groups."""

    def __init__(self) -> None:
        exporter = "kafka_consumergroup_"
        self.members = gauge(f"{exporter}members", "Members of a group.")
        self.offset = gauge(f"{exporter}current_offset", "Offset that a group has committed.")
        self.lag = gauge(f"{exporter}lag", "Records behind the committed offset.")
        self.offset_sum = gauge(f"{exporter}current_offset_sum", "Committed offsets of a topic.")
        self.lag_sum = gauge(f"{exporter}lag_sum", "Records of a topic behind the committed offsets.")
        self.seconds = gauge("moldau_group_lag_seconds", "Age of the record at the committed offset.")
        self.status = gauge("moldau_group_status", "0: keeps up, 1: its lag grows, 2: stopped, stalled or rewound.")
        self.rule = gauge("moldau_group_partition_status", "1 for the rule that says why a group does not keep up.")
        self.count = gauge("moldau_groups", "Groups that this broker coordinates.")
        self.left_out = gauge("moldau_groups_left_out", "Groups that are not told, as there are too many offsets.")
        self.late = counter("moldau_group_lag_late_total", "Lags in seconds that a scrape had no time for.")


class GroupMemory:
    """Commits and timestamps that are kept from one scrape to the next."""

    def __init__(self) -> None:
        self._windows: dict[Key, Window] = {}
        self._timestamps: dict[Key, _Timestamp] = {}
        self._late = 0

    def families(self, observed: Observed) -> Steps[list[Family]]:
        """All families of groups."""
        families = _Families()
        scrape = _Scrape(observed, families, self._windows, self._timestamps)
        for shard in observed.groups.loaded_shards():
            yield from scrape.take(shard)
        self._windows, self._timestamps = scrape.windows, scrape.timestamps
        self._late += scrape.late
        families.count.add(scrape.groups)
        families.left_out.add(scrape.left_out)
        families.late.add(self._late)
        return list(vars(families).values())


class _Scrape:
    """One walk over all groups."""

    def __init__(
        self,
        observed: Observed,
        families: _Families,
        windows_before: dict[Key, Window],
        timestamps_before: dict[Key, _Timestamp],
    ) -> None:
        self._replica = observed.parts.replicas.replica
        self._families = families
        self._windows_before = windows_before
        self._timestamps_before = timestamps_before
        self._now_ms = observed.parts.clock.now_ms()
        self._look_ups_s = 0.0
        self._partitions = 0
        self.windows: dict[Key, Window] = {}
        self.timestamps: dict[Key, _Timestamp] = {}
        self.groups = self.left_out = self.late = 0

    def take(self, shard: GroupShard) -> Steps[None]:
        """Tell all groups of a shard."""
        for group_id in shard.groups.ids():
            group = shard.groups.find(group_id)
            if group is None:
                continue  # it went while others had their turn
            self.groups += 1
            committed = shard.offsets.committed(group_id)
            self._partitions += max(1, len(committed))  # a group that has committed nothing has a line or two
            if self._partitions > PARTITIONS_MAX:
                self.left_out += 1
                yield
                continue
            yield from self._take_group(group_id, group, committed)

    def _take_group(
        self, group_id: str, group: Group, committed: dict[TopicPartition, OffsetCommitValue]
    ) -> Steps[None]:
        families, name = self._families, f'consumergroup="{label_value(group_id)}"'
        families.members.add(_member_count(group), f"{{{name}}}")
        worst = Rule.OK
        sums: dict[str, tuple[int, int]] = {}
        for partition, value in committed.items():
            labels = f'{{{name},topic="{label_value(partition.topic)}",partition="{partition.partition}"}}'
            families.offset.add(value.offset, labels)
            replica = self._replica(*partition)
            lag = None if replica is None else _lag(replica, value.offset)
            if replica is not None and lag is not None:
                families.lag.add(lag, labels)
                worst = max(worst, self._tell_status((group_id, partition), value, lag, labels))
                self._tell_seconds((group_id, partition), replica, value.offset, lag, labels)
            offset_sum, lag_sum = sums.get(partition.topic, (0, 0))
            sums[partition.topic] = (offset_sum + value.offset, lag_sum + (lag or 0))
            yield
        for topic, (offset_sum, lag_sum) in sums.items():
            labels = f'{{{name},topic="{label_value(topic)}"}}'
            families.offset_sum.add(offset_sum, labels)
            families.lag_sum.add(lag_sum, labels)
        families.status.add(worst.severity, f"{{{name}}}")
        yield

    def _tell_status(self, key: Key, value: OffsetCommitValue, lag: int, labels: str) -> Rule:
        window = self.windows[key] = self._windows_before.get(key) or Window()
        window.saw(value.offset, value.commit_timestamp, lag)
        rule = window.rule(self._now_ms)
        if rule is not Rule.OK:
            self._families.rule.add(1, f'{labels[:-1]},rule="{rule.name.lower()}"}}')
        return rule

    def _tell_seconds(self, key: Key, replica: Replica, offset: int, lag: int, labels: str) -> None:
        if lag == 0:
            self._families.seconds.add(0, labels)
            return
        start = max(offset, replica.log.log_start_offset)
        known = self._timestamps_before.get(key)
        if known is None or known.offset != start:
            known = self._look_up(replica, start)
        if known is not None:
            self.timestamps[key] = known
            self._families.seconds.add(max(0, self._now_ms - known.timestamp_ms) / 1000, labels)

    def _look_up(self, replica: Replica, offset: int) -> _Timestamp | None:
        if self._look_ups_s > LOOK_UPS_S_MAX:
            self.late += 1
            return None
        began = time.perf_counter()
        try:
            found = timestamp_at(replica.log, offset)
        except ApiError:
            found = None  # the log is offline, or the batch makes no sense: its readers are told
        self._look_ups_s += time.perf_counter() - began
        return None if found is None else _Timestamp(offset, found)


def _lag(replica: Replica, offset: int) -> int:
    return max(replica.high_watermark - max(offset, replica.log.log_start_offset), 0)


def _member_count(group: Group) -> int:
    if isinstance(group, ClassicGroup):
        return len(group.members)
    return len(group.state.members) if isinstance(group, ConsumerGroup) else 0
