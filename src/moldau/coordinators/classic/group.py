"""A group of the classic protocol: members join, their leader assigns, all sync, and again when anything changes.

A rebalance has two halves. PREPARING_REBALANCE parks every JoinGroup until all members have come (or the rebalance
timeout is over, or, for an empty group, `group.initial.rebalance.delay.ms` has passed without news). Then the
generation is raised, joins are answered, and COMPLETING_REBALANCE parks every SyncGroup until the leader's assignment
is committed.

Between two records the group lives in memory, as in Kafka: a coordinator that is lost in the middle of a rebalance
loses that rebalance, and the members start it anew. What a record says takes effect in `replay`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from moldau.coordinators.classic import records as classic_records
from moldau.coordinators.classic.answers import describe, join_answer, replacement_answer, sync_answer
from moldau.coordinators.classic.member import ClassicMember, ClassicMembers, refusal
from moldau.coordinators.classic.state import TRANSITIONS, ClassicState, check_transition
from moldau.coordinators.classic.subscription_bytes import CONSUMER_PROTOCOL_TYPE
from moldau.coordinators.classic.timers import ClassicTimers
from moldau.coordinators.groups.group import NO_MEMBER_ID, Caller, GroupKind, OffsetExpiry
from moldau.coordinators.groups.record_tables import GroupMetadataValue
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import NOTHING, Decision, Outcome, answered
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribedGroup

REBALANCE_TIMEOUT_IS_GIVEN = 1
MEMBER_ID_IS_REQUIRED = 4  # KIP-394
LEADER_MAY_SKIP_ASSIGNMENT = 9  # KIP-814

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Longest time that a first join may stay parked. Its sender has no member id yet, so a lost one is not noticed
otherwise."""


class ClassicGroup:
    """See `coordinators/groups/group.py` for the methods that both kinds of group have."""

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, world: World) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.state_since_ms = world.clock.now_ms()
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.generation = 0
        self.members = ClassicMembers()
        self.subscribed_topics: frozenset[str] | None = None
        """None: not known."""
        self.pending_joins: set[str] = set()
        """Member ids that were given out and have not joined yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members that have not fetched their assignment of this generation."""
        self._member_came = False
        self._world = world
        self._timers = ClassicTimers(group_id, world.timers)

    @classmethod
    def restored(cls, group_id: str, value: GroupMetadataValue, world: World) -> "ClassicGroup":
        """The group as its last record left it."""
        group = cls(group_id, world)
        group.protocol_type = value.protocol_type
        group.protocol_name = value.protocol
        group.generation = value.generation
        group.members = classic_records.members_of(value)
        group.state = ClassicState.STABLE if group.members else ClassicState.EMPTY
        group.previous_state = group.state
        group.state_since_ms = value.current_state_timestamp
        group.subscribed_topics = group._subscriptions()
        return group

    # --- facts

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def describe(self) -> DescribedGroup:
        return describe(self)

    # --- what Offsets asks

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,  # noqa: ARG002  # consumer groups look at it
        partitions: Sequence[tuple[bytes, int]] = (),  # noqa: ARG002  # likewise
    ) -> None:
        self._check_alive()
        if generation_or_epoch < 0 and self.is_empty:
            return  # a consumer that assigns its partitions by itself
        if generation_or_epoch >= 0 or member_id != NO_MEMBER_ID or instance_id is not None:
            self._validate(member_id, instance_id, generation_or_epoch)
        elif not is_transactional:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and this is none")
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002  # no epochs here
        self._check_alive(ErrorCode.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        self._check_alive(ErrorCode.GROUP_ID_NOT_FOUND)
        if not self.is_empty and not self.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "what the members read is not known")

    def offset_expiry(self) -> OffsetExpiry | None:
        if not self.protocol_type:
            return OffsetExpiry(None)
        if self.is_empty:
            return OffsetExpiry(self.state_since_ms if self.state_since_ms >= 0 else None)
        knows_topics = self.uses_consumer_protocol and self.subscribed_topics is not None
        return OffsetExpiry(None) if self.state is ClassicState.STABLE and knows_topics else None

    def keep_alive(self, member_id: str) -> None:
        if member_id in self.members and self.state in (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE):
            self._watch(self.members[member_id])

    def _validate(self, member_id: str, instance_id: str | None, generation: int) -> None:
        self.members.validate(member_id, instance_id)
        if generation != self.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, the group is at {self.generation}")

    def _check_alive(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        if self.state is ClassicState.DEAD:
            raise ApiError(code, f"group {self.group_id} has just moved or gone")

    # --- life of the group

    def validate_delete(self) -> None:
        self._check_alive(ErrorCode.GROUP_ID_NOT_FOUND)
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} has members")

    def tombstones(self) -> list[CoordinatorRecord]:
        return [classic_records.tombstone(self.group_id)]

    def records(self) -> list[CoordinatorRecord]:
        """The group as it is now."""
        return [self._record({member.member_id: member.assignment for member in self.members})]

    def replay(self, value: GroupMetadataValue) -> None:
        """A record that this very group wrote, live: of what it says only the assignment is news."""
        if value.generation != self.generation:
            return
        for member in value.members:
            if member.member_id in self.members:
                self.members[member.member_id].assignment = member.assignment

    def on_loaded(self) -> Outcome:
        for member in self.members:
            self._watch(member)
        if len(self.members) > self._setting("group.max.size"):
            return self._prepare_rebalance()  # the limit was lowered: whoever rejoins first may stay
        return NOTHING

    def on_unloaded(self) -> None:
        self.end(ErrorCode.NOT_COORDINATOR)

    def on_migrated(self) -> None:
        """Rebalance a group that was a consumer group a moment ago: heartbeats tell its members to join."""
        for member in self.members:
            self._watch(member)
        self._prepare_rebalance()

    def end(self, code: ErrorCode) -> None:
        """End the group on this broker; everybody who waits gets `code`."""
        for member in self.members:
            self._timers.cancel_session(member.member_id)
            member.refuse(code, member.member_id)
        for member_id in self.pending_joins:
            self._timers.cancel_session(member_id)
        self._timers.cancel_join()
        self._timers.cancel_sync()
        self._transition(ClassicState.DEAD)

    # --- JoinGroup

    def join(self, request: JoinGroupRequest, caller: Caller) -> Decision[JoinGroupResponse]:
        self._check_alive()
        if not self._has_room_for(request.member_id):
            self._remove(request.member_id)
            return answered(refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        if not self._supports(request):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the members have no protocol in common with this one"
            )
        answer: Promise[JoinGroupResponse] = Promise()
        if request.member_id == NO_MEMBER_ID:
            return self._join_as_new(request, caller, answer), answer
        if request.member_id in self.pending_joins:
            return self._add(request.member_id, request, caller, answer), answer
        self.members.validate(request.member_id, request.group_instance_id)
        return self._rejoin(self.members[request.member_id], request, caller, answer), answer

    def _has_room_for(self, member_id: str) -> bool:
        limit = self._setting("group.max.size")
        is_member = member_id in self.members
        if self.state is ClassicState.EMPTY:
            return True
        if self.state is ClassicState.PREPARING_REBALANCE:
            # those who wait are counted, not the members: a group above a lowered limit sheds the last to rejoin
            is_waiting = is_member and self.members[member_id].awaiting_join is not None
            return is_waiting or len(self.members.awaiting_join()) < limit
        return is_member or len(self.members) < limit

    def _supports(self, request: JoinGroupRequest) -> bool:
        names = {protocol.name for protocol in request.protocols}
        if self.is_empty:
            return bool(request.protocol_type) and bool(names)
        if self.protocol_type != request.protocol_type:
            return False
        return bool(names) if not self.members else not names.isdisjoint(self.members.candidates())

    def _join_as_new(self, request: JoinGroupRequest, caller: Caller, answer: Promise[JoinGroupResponse]) -> Outcome:
        instance_id = request.group_instance_id
        new_id = self._new_member_id(caller.client_id if instance_id is None else instance_id)
        if instance_id is not None and self.members.static_id(instance_id) is not None:
            return self._replace_static(instance_id, new_id, request, caller, answer)
        if instance_id is not None or caller.api_version < MEMBER_ID_IS_REQUIRED:
            return self._add(new_id, request, caller, answer)
        self.pending_joins.add(new_id)
        self._watch_session(new_id, request.session_timeout_ms)
        answer.complete(refusal(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        return NOTHING

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{UUID(bytes=self._world.new_uuid())}"

    def _add(
        self, member_id: str, request: JoinGroupRequest, caller: Caller, answer: Promise[JoinGroupResponse]
    ) -> Outcome:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, caller),
            protocols=request.protocols,
        )
        member.is_new = True
        member.awaiting_join = answer
        if not self.members:
            self.protocol_type = request.protocol_type
        if self.state is ClassicState.PREPARING_REBALANCE and self.previous_state is ClassicState.EMPTY:
            self._member_came = True
        self.members.add(member)
        self.pending_joins.discard(member_id)
        self._watch_session(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance_or_complete()

    def _rejoin(
        self, member: ClassicMember, request: JoinGroupRequest, caller: Caller, answer: Promise[JoinGroupResponse]
    ) -> Outcome:
        if self.state is ClassicState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        is_leader = member.member_id == self.members.leader_id
        # a leader that joins a stable group wants a rebalance: it saw new partitions, say
        wants_rebalance = is_leader and self.state is ClassicState.STABLE
        is_preparing = self.state is ClassicState.PREPARING_REBALANCE
        if is_preparing or wants_rebalance or not member.matches(request.protocols):
            self._update(member, request, caller, answer)
            return self._rebalance_or_complete()
        answer.complete(join_answer(self, member))  # it missed the answer to its join, which still holds
        return NOTHING

    def _update(
        self, member: ClassicMember, request: JoinGroupRequest, caller: Caller, answer: Promise[JoinGroupResponse]
    ) -> None:
        # a join that is still parked was given up by the client, which sends this one instead
        member.answer_join(refusal(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.members.update_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, caller)
        member.awaiting_join = answer

    # --- static members (KIP-345)

    def _replace_static(
        self,
        instance_id: str,
        new_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        answer: Promise[JoinGroupResponse],
    ) -> Outcome:
        """A restarted instance takes its old place, without a rebalance if the group's protocol stays."""
        leader_before = self.members.leader_id or ""
        old_id = self.members.static_id(instance_id) or ""
        may_skip = caller.api_version >= LEADER_MAY_SKIP_ASSIGNMENT
        undo = self._undo_replacement(instance_id, old_id)
        self._timers.cancel_session(old_id)
        member = self.members.replace_static(instance_id, new_id)
        self._watch(member)
        self._update(member, request, caller, answer)
        if self.state is not ClassicState.STABLE or self.members.select_protocol() != self.protocol_name:
            return self._rebalance_or_complete()

        def on_committed(error_code: int) -> None:
            if error_code:
                member.awaiting_join = None
                undo()
                answer.complete(refusal(error_code, NO_MEMBER_ID))
            else:
                member.answer_join(replacement_answer(self, member, leader_before, may_skip))

        return Outcome(self.records(), on_committed)

    def _undo_replacement(self, instance_id: str, old_id: str) -> Callable[[], None]:
        member = self.members[old_id]
        protocols = member.protocols
        session_timeout_ms, rebalance_timeout_ms = member.session_timeout_ms, member.rebalance_timeout_ms

        def undo() -> None:
            if member.member_id not in self.members:
                return
            self._timers.cancel_session(member.member_id)
            self.members.update_protocols(member, protocols)
            member.session_timeout_ms, member.rebalance_timeout_ms = session_timeout_ms, rebalance_timeout_ms
            self._watch(self.members.replace_static(instance_id, old_id))

        return undo

    # --- the rebalance

    def _rebalance_or_complete(self) -> Outcome:
        if ClassicState.PREPARING_REBALANCE in TRANSITIONS[self.state]:
            return self._prepare_rebalance()
        return self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> Outcome:
        # an empty group's first rebalance ends by its timer only
        is_first = self.previous_state is ClassicState.EMPTY
        if self.state is ClassicState.PREPARING_REBALANCE and not is_first and self._all_joined():
            return self._complete_join()
        return NOTHING

    def _all_joined(self) -> bool:
        return not self.pending_joins and not self.members.not_rejoined()

    def _prepare_rebalance(self) -> Outcome:
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self._drop_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel_sync()
        was_empty = self.is_empty
        self._transition(ClassicState.PREPARING_REBALANCE)
        if was_empty:
            self._wait_for_first_members()
            return NOTHING
        if self._all_joined():
            return self._complete_join()
        self._timers.schedule_join(self.members.rebalance_timeout_ms(), self._complete_join)
        return NOTHING

    def _wait_for_first_members(self) -> None:
        """Members of a new group start at about the same time: one rebalance for all is cheaper than one for each."""
        delay_ms = self._setting("group.initial.rebalance.delay.ms")
        remaining_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
        self._member_came = False
        self._schedule_first_join(delay_ms, remaining_ms)

    def _schedule_first_join(self, delay_ms: int, remaining_ms: int) -> None:
        expire = partial(self._complete_first_join, delay_ms, remaining_ms)
        self._timers.schedule_join(delay_ms, expire)

    def _complete_first_join(self, delay_ms: int, remaining_ms: int) -> Outcome:
        if not self._member_came or remaining_ms == 0:
            return self._complete_join()
        self._member_came = False
        next_delay_ms = min(self._setting("group.initial.rebalance.delay.ms"), remaining_ms)
        self._schedule_first_join(next_delay_ms, max(remaining_ms - delay_ms, 0))
        return NOTHING

    def _complete_join(self) -> Outcome:
        """All have come, or time is up: whoever has not is out, except static members, whose session decides."""
        self._timers.cancel_join()
        for member in self.members.not_rejoined():
            if not member.is_static:
                self._remove(member.member_id)
        if self.members and not self.members.elect_joined_leader():
            self._timers.schedule_join(self.members.rebalance_timeout_ms(), self._complete_join)
            return NOTHING
        self.generation += 1
        self.pending_syncs.clear()
        return self._start_generation() if self.members else self._fall_empty()

    def _fall_empty(self) -> Outcome:
        self.protocol_name = None
        self.subscribed_topics = self._subscriptions()
        self._transition(ClassicState.EMPTY)
        return Outcome([self._record({})])

    def _start_generation(self) -> Outcome:
        self.protocol_name = self.members.select_protocol()
        self.subscribed_topics = self._subscriptions()
        self._transition(ClassicState.COMPLETING_REBALANCE)
        for member in self.members:
            member.answer_join(join_answer(self, member))
            member.is_new = False
            self._watch(member)
            self.pending_syncs.add(member.member_id)
        expire = partial(self._expire_syncs, self.generation)
        self._timers.schedule_sync(self.members.rebalance_timeout_ms(), expire)
        return NOTHING

    # --- SyncGroup

    def sync(self, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
        self._check_alive()
        self._validate(request.member_id, request.group_instance_id, request.generation_id)
        self._check_same_protocol(request)
        if self.state is ClassicState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._note_sync(request.member_id)
        member = self.members[request.member_id]
        if self.state is ClassicState.STABLE:
            return answered(sync_answer(self, member))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))  # given up by the client
        answer: Promise[SyncGroupResponse] = Promise()
        member.awaiting_sync = answer
        if member.member_id != self.members.leader_id:
            return NOTHING, answer
        return self._assign({given.member_id: given.assignment for given in request.assignments}), answer

    def _check_same_protocol(self, request: SyncGroupRequest) -> None:
        is_same_type = request.protocol_type in (None, self.protocol_type)
        if not is_same_type or request.protocol_name not in (None, self.protocol_name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member synchronises another protocol")

    def _note_sync(self, member_id: str) -> None:
        self.pending_syncs.discard(member_id)
        if not self.pending_syncs:
            self._timers.cancel_sync()

    def _assign(self, assignment: Mapping[str, bytes]) -> Outcome:
        generation = self.generation

        def on_committed(error_code: int) -> None:
            if self.state is not ClassicState.COMPLETING_REBALANCE or self.generation != generation:
                return  # a rebalance came in between, and everybody has been told
            if error_code:
                self._drop_assignment(ErrorCode(error_code))
                self._prepare_rebalance()
            else:
                self._transition(ClassicState.STABLE)
                self._hand_out_assignment()

        return Outcome([self._record(assignment)], on_committed)

    def _hand_out_assignment(self) -> None:
        for member in self.members:
            if member.answer_sync(sync_answer(self, member)):
                self._watch(member)

    def _drop_assignment(self, code: ErrorCode) -> None:
        for member in self.members:
            member.assignment = b""
            if member.answer_sync(SyncGroupResponse(error_code=code)):
                self._watch(member)

    def _expire_syncs(self, generation: int) -> Outcome:
        """Members that took part in a rebalance and then did not ask for their share are removed."""
        if generation != self.generation or not self.pending_syncs:
            return NOTHING
        if self.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return NOTHING
        for member_id in list(self.pending_syncs):
            self._remove(member_id)
        return self._prepare_rebalance()

    # --- Heartbeat, LeaveGroup, silence

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        self._check_alive()
        self._validate(request.member_id, request.group_instance_id, request.generation_id)
        self._watch(self.members[request.member_id])
        is_preparing = self.state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE
        return answered(HeartbeatResponse(error_code=code))

    def leave(self, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        self._check_alive()
        results = [self._leave(identity) for identity in request.members]
        outcome = NOTHING
        if any(result.error_code == 0 for result in results):
            outcome = self._after_removal()
        return answered(LeaveGroupResponse(members=results), outcome.records)

    def _leave(self, identity: MemberIdentity) -> MemberResponse:
        code = ErrorCode.NONE
        try:
            self._remove(self._leaving_id(identity))
        except ApiError as error:
            code = error.code
        return MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
        )

    def _leaving_id(self, identity: MemberIdentity) -> str:
        if identity.member_id == NO_MEMBER_ID:  # an administrator removes a static member by its instance id
            member_id = self.members.static_id(identity.group_instance_id)
            if member_id is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            return member_id
        if identity.member_id not in self.pending_joins:
            self.members.validate(identity.member_id, identity.group_instance_id)
        return identity.member_id

    def _remove(self, member_id: str) -> None:
        self._timers.cancel_session(member_id)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.remove(member_id)
        if member is not None:
            member.refuse(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID)

    def _after_removal(self) -> Outcome:
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            return self._prepare_rebalance()
        return self._complete_if_all_joined()

    def _expire_session(self, member_id: str) -> Outcome:
        if member_id in self.pending_joins:
            self.pending_joins.discard(member_id)
            return self._complete_if_all_joined()
        if member_id not in self.members or self.members[member_id].is_excused:
            return NOTHING
        self._remove(member_id)
        return self._after_removal()

    # --- timers, transitions, records

    def _watch(self, member: ClassicMember) -> None:
        self._watch_session(member.member_id, member.session_timeout_ms)

    def _watch_session(self, member_id: str, timeout_ms: int) -> None:
        self._timers.schedule_session(member_id, timeout_ms, self._expire_session)

    def _setting(self, name: str) -> int:
        return self._world.config().int(name)

    def _transition(self, state: ClassicState) -> None:
        check_transition(self.state, state)
        self.previous_state, self.state = self.state, state
        self.state_since_ms = self._world.clock.now_ms()

    def _subscriptions(self) -> frozenset[str] | None:
        return self.members.subscribed_topics(self.protocol_name) if self.uses_consumer_protocol else None

    def _record(self, assignment: Mapping[str, bytes]) -> CoordinatorRecord:
        return classic_records.metadata_record(
            self.group_id,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol_name=self.protocol_name,
            state_since_ms=self.state_since_ms,
            members=self.members,
            assignment=assignment,
        )


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    if caller.api_version < REBALANCE_TIMEOUT_IS_GIVEN:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
