"""A consumer group (KIP-848): members tell in heartbeats what they want and have, the coordinator says what to do.

Three epochs drive it. The *group epoch* grows when a subscription or a subscribed topic changes. The *assignment
epoch* follows it when a target assignment was computed for it. Each *member epoch* follows that when the member has
given up what the target takes from it. A heartbeat does as much of this as it can, in that order.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from moldau.cluster.image import ClusterImage
from moldau.coordinators.consumer import classic_members as classic_side
from moldau.coordinators.consumer import records
from moldau.coordinators.consumer.answers import NOT_ASKED, assignment_told, described
from moldau.coordinators.consumer.assignors import ASSIGNORS, MemberSpec
from moldau.coordinators.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Reconciliation,
    Target,
)
from moldau.coordinators.consumer.pace import Pace
from moldau.coordinators.consumer.pattern_matching import PatternMatching
from moldau.coordinators.consumer.settings import ConsumerSettings
from moldau.coordinators.consumer.state import EMPTY, ConsumerState, Draft
from moldau.coordinators.consumer.subscriptions import (
    ResolvedRegex,
    compiled,
    names_of,
    names_of_all,
    patterns_of,
    subscribed,
)
from moldau.coordinators.groups.downgrade import downgraded, may_downgrade
from moldau.coordinators.groups.group import Caller, GroupKind, OffsetExpiry
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import NOTHING, Decision, Outcome, answered
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribedGroup
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.protocol.messages.k69_consumer_group_describe import DescribedGroup as DescribedConsumerGroup

T = TypeVar("T")

TIMERS = SESSION, REVOCATION, JOIN, SYNC = "session", "revocation", "join", "sync"
MEMBER_ID_COMES_FROM_CLIENT = 1  # KIP-1082
OFFSET_COMMIT_HAS_MEMBER_EPOCH = 9
REGEX_REFRESH_INTERVAL_MIN_MS = 1_000
"""Patterns are looked at again when topics come or go, but not more often than this."""


class ConsumerGroup:
    """One group. Timers and what was seen of the cluster live here; everything durable is in `state`."""

    kind = GroupKind.CONSUMER
    protocol_type = "consumer"

    def __init__(self, group_id: str, world: World) -> None:
        self.group_id = group_id
        self.state = ConsumerState(group_id)
        self.world = world
        self._seen_topics: object = None
        """The cluster's topics when `metadata_hash` was last compared."""
        self._matched_topics: object = None
        """The cluster's topics when patterns were last matched, at `_matched_ms`."""
        self._matched_ms = 0
        self._matching = PatternMatching(group_id, world, self._matched_later)
        self._asked_to_join: set[str] = set()
        self._pace = Pace()

    def replay(self, record: CoordinatorRecord) -> None:
        self.state.replay(record)

    @property
    def settings(self) -> ConsumerSettings:
        own = self.world.image().group_configs.get(self.state.group_id)
        return ConsumerSettings.of_group(self.world.config(), own)

    # the consumer protocol

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Join, go on or leave. Raises ApiError; `validate_heartbeat` has been passed."""
        draft = Draft(self.state)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            response = self._leave(draft, request)
        else:
            response = self._beat(draft, request, caller)
        return self.decided(draft, response)

    def decided(self, draft: Draft, response: T) -> Decision[T]:
        """Answer when the records are committed. If they are not, what was noted in memory on the way is undone."""
        if not draft.records:
            return answered(response)
        answer: Promise[T] = Promise()

        def on_committed(error_code: int) -> None:
            if error_code:
                self._undo(draft)
            else:
                answer.complete(response)

        adopt = None if draft.is_end else partial(self._adopt, draft)
        return Outcome(draft.records, on_committed, adopt), answer

    def _adopt(self, draft: Draft) -> None:
        invariant(self.state is draft.before, "a group changed between decision and replay")
        self.state = draft.state

    def _undo(self, draft: Draft) -> None:
        self._seen_topics = self._matched_topics = None
        self._matching.cancel()
        for member_id in draft.unwatched & self.state.members.keys():
            self.watch_session(self.state.members[member_id])

    def _beat(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        self.check_room(request.member_id)
        member = self._find_member(draft, request)
        settled = self.advance(draft, member, _updated(member, request, caller), _owned(request))
        return self._answer(draft.state, request, member, settled)

    def advance(
        self, draft: Draft, member: ConsumerMember, updated: ConsumerMember, owned: Iterable[tuple[bytes, int]] | None
    ) -> ConsumerMember:
        """Do all that a sign of life causes: write epochs and target, and take the member's next step."""
        if updated != member or member.member_id not in draft.state.members:
            draft.write(records.member_metadata(self.group_id, updated))
        changed = updated.subscribed_names != member.subscribed_names
        changed |= self._follow_regex(draft, member.subscribed_regex, updated.subscribed_regex)
        self._follow_topics(draft, changed)
        self._assign(draft)
        settled = self._reconcile(draft, updated, owned, changed)
        self.watch_session(settled)
        return settled

    def check_room(self, member_id: str) -> None:
        members = self.state.members
        if len(members) >= self.settings.size_max and member_id not in members:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {len(members)} members already")

    def _find_member(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        member_id = request.member_id or str(UUID(bytes=self.world.new_uuid()))
        if request.instance_id is not None:
            return self._find_static(draft, request.instance_id, member_id, request)
        member = self.state.members.get(member_id)
        if member is not None:
            _check_epoch(member, request)
            return member
        if request.member_epoch == JOIN_EPOCH:
            return ConsumerMember(member_id)
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.group_id}")

    def _find_static(
        self, draft: Draft, instance_id: str, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerMember:
        known = self.state.static_member(instance_id)
        if request.member_epoch != JOIN_EPOCH:
            member = self.known_static(known, instance_id, member_id)
            _check_epoch(member, request)
            return member
        if known is None:
            return self.state.members.get(member_id) or ConsumerMember(member_id)
        if known.epoch != STATIC_LEAVE_EPOCH and known.classic is None:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {instance_id} is in use by member {known.member_id}"
            )
        return self.replace_static(draft, known, member_id)

    def known_static(self, known: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is not known")
        if known.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} belongs to member {known.member_id} now"
            )
        return known

    def replace_static(self, draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under a new member id: it takes over what the old one had, without a new epoch."""
        self._cancel_timers(old.member_id)
        draft.unwatched.add(old.member_id)
        target = draft.state.target.get(old.member_id, {})
        new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        draft.write(
            *records.member_gone(self.group_id, old.member_id),
            records.member_metadata(self.group_id, new),
            records.member_target(self.group_id, member_id, target),
            records.member_current(self.group_id, new),
        )
        return new

    def _follow_regex(self, draft: Draft, old: str | None, new: str | None) -> bool:
        """Keep the resolved patterns to those in use and up to date. Does the group need a new epoch for it?"""
        if not (new or old or draft.state.regexes):
            return False
        if new and new != old:
            compiled(new)
        in_use = patterns_of(draft.state.members.values())
        draft.write(*records.regexes_gone(self.group_id, sorted(set(draft.state.regexes) - in_use)))
        resolved_anew = self._resolve(draft, in_use) if in_use else False
        return resolved_anew or (new or "") != (old or "")

    def _resolve(self, draft: Draft, in_use: Iterable[str]) -> bool:
        image, now_ms = self.world.image(), self.world.clock.now_ms()
        age_ms = now_ms - self._matched_ms
        stale = self._matched_topics is not image.topics and age_ms >= REGEX_REFRESH_INTERVAL_MIN_MS
        stale |= age_ms >= self.settings.regex_refresh_interval_ms
        changed = False
        for pattern in sorted(in_use):
            known = draft.state.regexes.get(pattern)
            if known is not None and not stale:
                continue
            topics = self._matching.match(pattern, image.topics)
            if topics is not None:
                changed |= self._note_matched(draft, pattern, topics)
        if stale:
            self._matched_ms = now_ms
            self._matched_topics = None if self._matching.is_behind(image.topics) else image.topics
        return changed

    def _note_matched(self, draft: Draft, pattern: str, topics: frozenset[str]) -> bool:
        known = draft.state.regexes.get(pattern)
        if known is not None and known.topics == topics:
            return False
        resolved = ResolvedRegex(topics, 0, self.world.clock.now_ms())
        draft.write(records.regex_resolved(self.group_id, pattern, resolved))
        return True

    def _matched_later(self) -> Outcome:
        """Patterns that took long came to something: the members hear of it with their next heartbeats."""
        draft = Draft(self.state)
        found = self._matching.matched(patterns_of(self.state.members.values()))
        changed = [pattern for pattern, topics in found.items() if self._note_matched(draft, pattern, topics)]
        if not changed:
            return NOTHING
        self._follow_topics(draft, changed=True)
        return self.decided(draft, None)[0]

    def _follow_topics(self, draft: Draft, changed: bool) -> None:
        """A new group epoch if a subscription or a subscribed topic is not what it was."""
        image = self.world.image()
        if not changed and self._seen_topics is image.topics:
            return
        hashed = self._metadata_hash(draft, image)
        if changed or hashed != draft.state.metadata_hash:
            draft.write(records.group_epoch(self.group_id, draft.state.epoch + 1, hashed))
            if draft.state.has_partition_metadata:
                draft.write(records.partition_metadata_gone(self.group_id))
        self._seen_topics = image.topics

    def _metadata_hash(self, draft: Draft, image: ClusterImage) -> int:
        names = names_of_all(draft.state.members.values(), draft.state.regexes)
        return subscribed(names, image).metadata_hash

    def _assign(self, draft: Draft) -> None:
        """A new target assignment if the last one is behind the group epoch, and not too young (KIP-1263)."""
        state, now_ms, settings = draft.state, self.world.clock.now_ms(), self.settings
        if state.assignment_epoch >= state.epoch:
            return
        if now_ms < _target_due_ms(state, settings):
            return
        draft.write(*self._new_target(state, settings))
        draft.write(records.target_epoch(self.group_id, state.epoch, now_ms))

    def _new_target(self, state: ConsumerState, settings: ConsumerSettings) -> list[CoordinatorRecord]:
        image = self.world.image()
        preferred = state.preferred_assignor()
        name = preferred if preferred in settings.assignors else settings.assignors[0]
        names = {member_id: names_of(member, state.regexes) for member_id, member in state.members.items()}
        topics = {each: subscribed(each, image) for each in set(names.values())}
        counts: dict[bytes, int] = {}
        for each in topics.values():
            counts.update(each.partition_counts)
        specs = {
            member_id: MemberSpec(
                topics[names[member_id]].topic_ids, state.target.get(member_id, {}), member.instance_id
            )
            for member_id, member in state.members.items()
        }
        assignment = ASSIGNORS[name](specs, counts)
        return [
            records.member_target(self.group_id, member_id, partitions)
            for member_id, partitions in assignment.items()
            if state.target.get(member_id) != partitions
        ]

    def _reconcile(
        self, draft: Draft, member: ConsumerMember, owned: Iterable[tuple[bytes, int]] | None, changed: bool
    ) -> ConsumerMember:
        state = draft.state
        if not changed and member.is_reconciled_to(state.assignment_epoch):
            return member
        step = Reconciliation(
            target=Target(state.assignment_epoch, state.target.get(member.member_id, {})),
            subscribed_topics=subscribed(names_of(member, state.regexes), self.world.image()).topic_ids,
            is_held=lambda topic_id, partition: (topic_id, partition) in state.owners,
            owned=owned,
            subscription_changed=changed,
        )
        settled = step.next(member)
        if settled != member:
            draft.write(records.member_current(self.group_id, settled))
            self._watch_revocation(settled)
        return settled

    def _answer(
        self,
        state: ConsumerState,
        request: ConsumerGroupHeartbeatRequest,
        before: ConsumerMember,
        after: ConsumerMember,
    ) -> ConsumerGroupHeartbeatResponse:
        """The assignment is told when it changed, to one who joins, and to one who told everything about itself."""
        is_new = request.member_epoch == JOIN_EPOCH
        told = is_new or _is_full(request) or before.assigned != after.assigned
        settings = self.settings
        interval_ms = self._pace.interval_ms(
            after,
            state,
            is_new=is_new,
            target_due_ms=_target_due_ms(state, settings) - self.world.clock.now_ms(),
            longest_ms=settings.heartbeat_interval_ms,
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment_told(after.assigned) if told else None,
        )

    def _leave(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self._leaving(request)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            draft.write(records.member_current(self.group_id, _away(member)))
        else:
            self.fence(draft, [member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _leaving(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        if request.instance_id is not None:
            known = self.state.static_member(request.instance_id)
            return self.known_static(known, request.instance_id, request.member_id)
        member = self.state.members.get(request.member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member of group {self.group_id}")
        return member

    def fence(self, draft: Draft, members: Iterable[ConsumerMember]) -> None:
        """Take members out: a new epoch, and the next heartbeat of another gives away what they had."""
        for member in members:
            draft.write(*records.member_gone(self.group_id, member.member_id))
            self._cancel_timers(member.member_id)
            draft.unwatched.add(member.member_id)
        if may_downgrade(draft.state, self.world.config()):
            self.downgrade(draft)
            return
        unused = set(draft.state.regexes) - patterns_of(draft.state.members.values())
        draft.write(*records.regexes_gone(self.group_id, sorted(unused)))
        hashed = self._metadata_hash(draft, self.world.image())
        draft.write(records.group_epoch(self.group_id, draft.state.epoch + 1, hashed))

    def downgrade(self, draft: Draft) -> None:
        """Make it a classic group: only members of the classic protocol are left."""
        for member_id in draft.state.members:
            self._cancel_timers(member_id)
            draft.unwatched.add(member_id)
        self._matching.cancel()
        draft.write(*downgraded(draft.state, self.world))
        draft.is_end = True

    # timers

    def watch_session(self, member: ConsumerMember) -> None:
        timeout_ms = self.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self._watch(SESSION, member, timeout_ms)

    def watch_join(self, member: ConsumerMember) -> None:
        """A member of the classic protocol was told to rejoin."""
        if member.member_id not in self._asked_to_join:
            self._asked_to_join.add(member.member_id)
            self._watch(JOIN, member, member.rebalance_timeout_ms)

    def watch_sync(self, member: ConsumerMember) -> None:
        """Expect a SyncGroup of a member that has joined."""
        self._unwatch(JOIN, member.member_id)
        self._asked_to_join.discard(member.member_id)
        self._watch(SYNC, member, member.rebalance_timeout_ms)

    def synced(self, member: ConsumerMember) -> None:
        self._unwatch(SYNC, member.member_id)
        self.watch_session(member)

    def _watch_revocation(self, member: ConsumerMember) -> None:
        """A member that does not let go in time is thrown out; a classic one is watched by its joins."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self._watch(REVOCATION, member, member.rebalance_timeout_ms)
        else:
            self._unwatch(REVOCATION, member.member_id)

    def _watch(self, kind: str, member: ConsumerMember, delay_ms: int) -> None:
        key = self._timer(kind, member.member_id)
        self.world.timers.schedule(key, delay_ms, partial(self._expire, member.member_id, kind == REVOCATION))

    def _unwatch(self, kind: str, member_id: str) -> None:
        self.world.timers.cancel(self._timer(kind, member_id))

    def _expire(self, member_id: str, is_revocation: bool) -> Outcome:
        member = self.state.members.get(member_id)
        if member is None or (is_revocation and member.state is not MemberState.UNREVOKED_PARTITIONS):
            return NOTHING
        draft = Draft(self.state)
        self.fence(draft, [member])
        return self.decided(draft, None)[0]

    def _cancel_timers(self, member_id: str) -> None:
        self._asked_to_join.discard(member_id)
        self._pace.forget(member_id)
        for kind in TIMERS:
            self._unwatch(kind, member_id)

    def _timer(self, kind: str, member_id: str) -> str:
        return f"consumer-{kind}/{self.group_id}/{member_id}"

    def on_loaded(self) -> Outcome:
        """Everybody gets a full session anew; who must let go gets its full time anew."""
        for member in self.state.members.values():
            self.watch_session(member)
            self._watch_revocation(member)
        return NOTHING

    def on_unloaded(self) -> None:
        """Nobody waits for an answer here: a heartbeat is answered at once."""
        for member_id in self.state.members:
            self._cancel_timers(member_id)
        self._matching.cancel()

    # what others ask

    @property
    def state_name(self) -> str:
        return self.state.name

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in names_of(member, self.state.regexes) for member in self.state.members.values())

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Sequence[tuple[bytes, int]] = (),
    ) -> None:
        if generation_or_epoch < 0 and self.is_empty:
            return  # an administrator sets offsets of a group that nobody is in
        if is_transactional and generation_or_epoch < 0 and not member_id and instance_id is None:
            return  # a producer that does not know the group's members (before KIP-447)
        member = self.existing_member(member_id)
        if not is_transactional and member.classic is None and api_version < OFFSET_COMMIT_HAS_MEMBER_EPOCH:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "members of the consumer protocol commit with version 9 or later"
            )
        if not partitions or not member.has_held(partitions, generation_or_epoch):
            _check_commit_epoch(member, generation_or_epoch)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return  # from a tool, or in a version without members
        _check_commit_epoch(self.existing_member(member_id or ""), member_epoch)

    def existing_member(self, member_id: str) -> ConsumerMember:
        member = self.state.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {self.group_id}")
        return member

    def validate_offset_delete(self) -> None:
        """Topics nobody subscribes to can always be forgotten; `is_subscribed_to` guards the others."""

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(None)

    def keep_alive(self, member_id: str) -> None:
        """Do nothing: only heartbeats keep a member of this protocol alive."""

    def validate_delete(self) -> None:
        if self.state_name != EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {self.group_id} is not empty")

    def tombstones(self) -> list[CoordinatorRecord]:
        return self.state.tombstones()

    # the classic protocol

    def join(self, request: JoinGroupRequest, caller: Caller) -> Decision[JoinGroupResponse]:
        return classic_side.join(self, request, caller)

    def sync(self, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
        return classic_side.sync(self, request)

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
        return classic_side.heartbeat(self, request)

    def leave(self, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
        return classic_side.leave(self, request)

    def describe(self) -> DescribedGroup:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {self.group_id} is not a classic group")

    def describe_consumer(self, operations: int = NOT_ASKED) -> DescribedConsumerGroup:
        """Description for ConsumerGroupDescribe (key 69)."""
        assignor = self.state.preferred_assignor() or self.settings.assignors[0]
        return described(self.state, assignor, self.world.image(), operations)


def validate_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Iterable[str]) -> None:
    """Raise ApiError for a heartbeat that is wrong whatever the state of the group."""
    reason = _reason_to_refuse(request, api_version)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {request.server_assignor}; there are {known}"
        )


def _reason_to_refuse(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    epoch = request.member_epoch
    if not request.member_id and (api_version >= MEMBER_ID_COMES_FROM_CLIENT or epoch > 0 or epoch == LEAVE_EPOCH):
        return "a member id is needed"
    if not request.group_id:
        return "the group id is empty"
    if request.instance_id == "":
        return "the instance id is empty"
    if request.rack_id == "":
        return "the rack id is empty"
    if epoch == JOIN_EPOCH:
        return _reason_to_refuse_join(request)
    if epoch < STATIC_LEAVE_EPOCH:
        return "the member epoch makes no sense"
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "only a static member leaves for a while"
    return None


def _reason_to_refuse_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "who joins has to say its rebalance timeout"
    if request.topic_partitions != []:
        return "who joins owns nothing yet"
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "who joins has to subscribe to something"
    return None


def _updated(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """Member as a heartbeat changes it; fields that the heartbeat leaves out stay."""
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    regex = member.subscribed_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
    return member._replace(
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        subscribed_regex=regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        classic=None,
    )


def _target_due_ms(state: ConsumerState, settings: ConsumerSettings) -> int:
    """Time from which on the group may get its next target."""
    if not state.assignment_timestamp_ms or not settings.assignment_interval_ms:
        return 0
    return state.assignment_timestamp_ms + settings.assignment_interval_ms


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """One epoch behind is fine if it owns no more than it may: the answer with the new epoch got lost."""
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    owned = _owned(request)
    may_catch_up = owned is not None and all(each in member.assigned.get(topic, ()) for topic, each in owned)
    if epoch > member.epoch or epoch != member.previous_epoch or not may_catch_up:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {member.epoch}, not {epoch}: it must give up all partitions and rejoin",
        )


def _check_commit_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    raise ApiError(code, f"the member's epoch is {member.epoch}, not {epoch}")


def _owned(request: ConsumerGroupHeartbeatRequest) -> list[tuple[bytes, int]] | None:
    if request.topic_partitions is None:
        return None
    return [(topic.topic_id, partition) for topic in request.topic_partitions for partition in topic.partitions]


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _away(member: ConsumerMember) -> ConsumerMember:
    """A static member that said it will be back: it keeps what it has, and cannot commit meanwhile."""
    kept = {topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()}
    return member._replace(epoch=STATIC_LEAVE_EPOCH, assigned=kept, pending_revocation={})
