"""All groups of one shard, of either kind, by id; each request goes to the group it names.

Which kind an id stands for may change only while nobody is in the group, or by migration: a join replaces an empty
consumer group, and a consumer's heartbeat an empty classic one. The old kind's tombstones are then written before the
new kind's first record, in one batch. A classic group with members is upgraded by the first consumer that comes, and a
consumer group becomes classic again by the records it writes (`migration.py`).
"""

from collections.abc import Collection, Sequence

from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.groups.group import NO_MEMBER_ID, Caller, Group, GroupKind
from moldau.coordinators.groups.migration import upgraded
from moldau.coordinators.groups.record_tables import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Decision, Outcome, answered
from moldau.coordinators.records import CoordinatorRecord, RecordValue
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribedGroup
from moldau.protocol.messages.k16_list_groups import ListedGroup
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

JOIN_EPOCH = 0


class Groups:
    """The groups of a shard. Methods raise `ApiError` for what is refused."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._groups: dict[str, Group] = {}
        self._is_loaded = False

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def ids(self) -> Sequence[str]:
        return list(self._groups)

    def ensure_simple(self, group_id: str) -> Group:
        """The group, or a new one without members: offsets alone make a group, and bring it back after a restart."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id, self._world)
        return group

    # --- the classic protocol

    def join(self, request: JoinGroupRequest, caller: Caller) -> Decision[JoinGroupResponse]:
        _check_group_id(request.group_id)
        self._check_session_timeout(request.session_timeout_ms)
        group = self._groups.get(request.group_id)
        if group is not None and (group.kind is GroupKind.CLASSIC or not group.is_empty):
            return group.join(request, caller)
        if request.member_id != NO_MEMBER_ID:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {request.group_id!r}")
        return self._join_new_group(request, caller, replaced=group)

    def _check_session_timeout(self, timeout_ms: int) -> None:
        config = self._world.config()
        shortest, longest = config.int("group.min.session.timeout.ms"), config.int("group.max.session.timeout.ms")
        if not shortest <= timeout_ms <= longest:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{timeout_ms} is not from {shortest} to {longest}")

    def _join_new_group(
        self, request: JoinGroupRequest, caller: Caller, replaced: Group | None
    ) -> Decision[JoinGroupResponse]:
        """A group is written as soon as it exists, be it without members: offsets may follow before a generation."""
        group = ClassicGroup(request.group_id, self._world)
        created = group.records()
        outcome, answer = group.join(request, caller)
        return self._installed(group, replaced, outcome._replace(records=[*created, *outcome.records])), answer

    def sync(self, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
        _check_group_id(request.group_id)
        return self._of_member(request.group_id).sync(request)

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        _check_group_id(request.group_id)
        return self._of_member(request.group_id).heartbeat(request)

    def leave(self, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        _check_group_id(request.group_id)
        return self._of_member(request.group_id).leave(request)

    def _of_member(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    # --- the consumer protocol

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group.consumer_heartbeat(request, caller)
        if request.member_epoch != JOIN_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id!r}")
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self._upgrade(group, request, caller)
        new = ConsumerGroup(request.group_id, self._world)
        outcome, answer = new.consumer_heartbeat(request, caller)
        return self._installed(new, group, outcome), answer

    def _upgrade(
        self, old: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """The first member of the consumer protocol comes to a classic group that has members."""
        [snapshot] = old.records()
        migrated = upgraded(old, self._world)
        new = ConsumerGroup(old.group_id, self._world)
        for record in migrated:
            new.replay(record)
        outcome, answer = new.consumer_heartbeat(request, caller)
        old.end(ErrorCode.REBALANCE_IN_PROGRESS)
        new.on_loaded()
        self._groups[old.group_id] = new

        def on_committed(error_code: int) -> None:
            outcome.committed(error_code)
            if error_code and self._groups.get(old.group_id) is new:
                self._replay_classic(old.group_id, snapshot.value)

        return Outcome([*migrated, *outcome.records], on_committed), answer

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        """Group for ConsumerGroupDescribe; raises ApiError if it is no consumer group."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
        return group

    def _installed(self, group: Group, replaced: Group | None, outcome: Outcome) -> Outcome:
        """Hold a new group from now on, and no longer if its first records do not get into the log."""
        self._groups[group.group_id] = group
        tombstones = [] if replaced is None else replaced.tombstones()

        def on_committed(error_code: int) -> None:
            outcome.committed(error_code)
            if error_code and self._groups.get(group.group_id) is group:
                self._forget(group.group_id)
                if replaced is not None:
                    self._groups[group.group_id] = replaced

        if not tombstones:
            return Outcome(outcome.records, on_committed, outcome.adopt)
        return Outcome([*tombstones, *outcome.records], on_committed)

    # --- administration

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return group.describe()

    def listed(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """Groups in one of the states and of one of the types, in any case of letters; without a filter, all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind.value,
            )
            for group in self._groups.values()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.kind.value in wanted_types)
        ]

    def delete(self, group_id: str, offset_tombstones: Sequence[CoordinatorRecord]) -> Decision[int]:
        """Remove an empty group with all that was committed in its name."""
        return answered(int(ErrorCode.NONE), [*offset_tombstones, *self.validate_delete(group_id).tombstones()])

    def validate_delete(self, group_id: str) -> Group:
        """The group, if it may be removed; raises ApiError."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        group.validate_delete()
        return group

    # --- records

    def replay(self, record: CoordinatorRecord) -> None:
        key, value = record
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            return
        if isinstance(key, GroupMetadataKey):
            self._replay_classic(key.group, value)
        else:
            self._replay_consumer(key.group_id, record)  # type: ignore[attr-defined]  # all other keys have one

    def _replay_classic(self, group_id: str, value: RecordValue | None) -> None:
        group = self._groups.get(group_id)
        if not isinstance(value, GroupMetadataValue):
            if isinstance(group, ClassicGroup):
                self._forget(group_id)
        elif self._is_loaded and isinstance(group, ClassicGroup):
            group.replay(value)
        else:
            self._restore_classic(group_id, value)

    def _restore_classic(self, group_id: str, value: GroupMetadataValue) -> None:
        if group_id in self._groups:
            self._forget(group_id)
        group = self._groups[group_id] = ClassicGroup.restored(group_id, value, self._world)
        if self._is_loaded and not group.is_empty:
            group.on_migrated()

    def _replay_consumer(self, group_id: str, record: CoordinatorRecord) -> None:
        found = self._groups.get(group_id)
        if not isinstance(found, ConsumerGroup) and record.value is None:
            return  # the group is of the other kind by now, or gone
        group = found if isinstance(found, ConsumerGroup) else ConsumerGroup(group_id, self._world)
        self._groups[group_id] = group
        group.replay(record)
        if isinstance(record.key, ConsumerGroupMetadataKey) and record.value is None:
            self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id)
        if isinstance(group, ClassicGroup):
            group.end(ErrorCode.REBALANCE_IN_PROGRESS)  # whoever still waits joins again, and finds what is there now
        else:
            group.on_unloaded()

    def on_loaded(self) -> Sequence[Outcome]:
        """The log has been read: sessions start anew, and every member has its full timeout to come back."""
        self._is_loaded = True
        return [group.on_loaded() for group in list(self._groups.values())]

    def on_unloaded(self) -> None:
        for group in self._groups.values():
            group.on_unloaded()
        self._groups.clear()


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "members need a group with a name")
