"""State that the records of a consumer group build. `replay` is the only mutator, live and at restart alike.

A decision is made on a `Draft`: records written to it are applied to a copy at once, so that what follows in the same
decision sees them. The group's own state changes when the runtime replays the records, or has the group adopt what
the draft came to, which is the same.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from moldau.coordinators.consumer import records
from moldau.coordinators.consumer.assignors import Partitions
from moldau.coordinators.consumer.member import LEAVE_EPOCH, NOTHING_HELD, ConsumerMember, MemberState
from moldau.coordinators.consumer.subscriptions import ResolvedRegex
from moldau.coordinators.groups.record_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from moldau.coordinators.records import CoordinatorRecord

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"


class ConsumerState:
    """One group's durable state."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_members",
        "target",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1  # as in Kafka 4.3: the first member makes it 2
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        """Member that holds each partition, also one that is about to give it up."""
        self.has_partition_metadata = False

    def copy(self) -> "ConsumerState":
        copy = ConsumerState(self.group_id)
        copy.epoch, copy.metadata_hash = self.epoch, self.metadata_hash
        copy.assignment_epoch, copy.assignment_timestamp_ms = self.assignment_epoch, self.assignment_timestamp_ms
        copy.members, copy.static_members = self.members.copy(), self.static_members.copy()
        copy.target, copy.regexes, copy.owners = self.target.copy(), self.regexes.copy(), self.owners.copy()
        copy.has_partition_metadata = self.has_partition_metadata
        return copy

    @property
    def name(self) -> str:
        """The state as Kafka's tools print it."""
        if not self.members:
            return EMPTY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        settled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return STABLE if settled else RECONCILING

    def preferred_assignor(self) -> str | None:
        """The one that most members name."""
        named = [member.server_assignor for member in self.members.values() if member.server_assignor]
        if not named:
            return None
        votes = Counter(named)
        return max(sorted(votes), key=votes.__getitem__, default=None)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def classic_members(self) -> list[ConsumerMember]:
        """Members that speak the classic protocol (online migration)."""
        return [member for member in self.members.values() if member.classic is not None]

    def tombstones(self) -> list[CoordinatorRecord]:
        """Records that remove the group from the log."""
        gone = [record for member_id in self.members for record in records.member_gone(self.group_id, member_id)]
        gone += records.regexes_gone(self.group_id, sorted(self.regexes))
        if self.has_partition_metadata:
            gone.append(records.partition_metadata_gone(self.group_id))
        return [*gone, records.target_gone(self.group_id), records.group_gone(self.group_id)]

    def replay(self, record: CoordinatorRecord) -> None:
        key, value = record
        replay = _REPLAY_OF_TYPE.get(key.record_type)
        if replay is not None:
            replay(self, key, value)

    def _replay_epoch(self, _: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        """Take epoch and hash; a record without a value means that the group is gone, and its holder forgets it."""
        if value is not None:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_partition_metadata(self, _: ConsumerGroupPartitionMetadataKey, value: object) -> None:
        self.has_partition_metadata = value is not None

    def _replay_target_epoch(
        self,
        _: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.assignment_epoch = -1 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member_id = key.member_id
        old = self.members.get(member_id)
        if old is not None and self.static_members.get(old.instance_id or "") == member_id:
            del self.static_members[old.instance_id or ""]
        if value is None:
            self._replace(old, None)
            return
        self.members[member_id] = (old or ConsumerMember(member_id)).with_metadata(value)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        """Take a member's assignment, also before its metadata: compaction keeps the last of each key, wherever it
        is."""
        member_id = key.member_id
        old = self.members.get(member_id)
        if value is not None:
            self._replace(old, (old or ConsumerMember(member_id)).with_current(value))
        elif old is not None:
            bare = old._replace(
                state=MemberState.STABLE,
                epoch=LEAVE_EPOCH,
                previous_epoch=LEAVE_EPOCH,
                assigned=NOTHING_HELD,
                pending_revocation=NOTHING_HELD,
            )
            self._replace(old, bare)

    def _replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None:
            for partition in old.holds:
                if self.owners.get(partition) == old.member_id:
                    del self.owners[partition]
            del self.members[old.member_id]
        if new is not None:
            self.members[new.member_id] = new
            self.owners.update((partition, new.member_id) for partition in new.holds)

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.regexes[key.regular_expression] = resolved


_REPLAY_OF_TYPE: Mapping[int, Callable[[ConsumerState, Any, Any], None]] = {
    ConsumerGroupMetadataKey.record_type: ConsumerState._replay_epoch,
    ConsumerGroupPartitionMetadataKey.record_type: ConsumerState._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey.record_type: ConsumerState._replay_member,
    ConsumerGroupTargetAssignmentMetadataKey.record_type: ConsumerState._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey.record_type: ConsumerState._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey.record_type: ConsumerState._replay_current,
    ConsumerGroupRegularExpressionKey.record_type: ConsumerState._replay_regex,
}
"""A record's value goes with its key, which the types cannot say."""


class Draft:
    """A decision in the making. The state is copied at the first record, so a quiet heartbeat copies nothing."""

    __slots__ = ("before", "is_end", "records", "state", "unwatched")

    def __init__(self, state: ConsumerState) -> None:
        self.before = self.state = state
        self.is_end = False
        """True if it is no consumer group any more after these records."""
        self.records: list[CoordinatorRecord] = []
        self.unwatched: set[str] = set()
        """Members whose timers were cancelled: they need them again if the records do not get into the log."""

    def write(self, *written: CoordinatorRecord) -> None:
        if written and not self.records:
            self.state = self.state.copy()
        for record in written:
            self.records.append(record)
            self.state.replay(record)
