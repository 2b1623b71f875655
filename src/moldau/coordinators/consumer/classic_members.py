"""Members of the classic protocol in a consumer group, while a group moves from one protocol to the other (KIP-848).

To such a member the group looks like a classic one that somebody else leads: a join is answered at once with the
member's epoch as generation, a sync with what the member may have now, and a heartbeat tells it to rejoin when there
is a step to take. A step that takes partitions away and one that gives some are two joins, as in a cooperative
rebalance.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.cluster.image import ClusterImage
from moldau.coordinators.classic.subscription_bytes import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerSubscription,
    parse_subscription,
)
from moldau.coordinators.consumer.member import ConsumerMember, MemberState
from moldau.coordinators.consumer.state import ConsumerState, Draft
from moldau.coordinators.groups.downgrade import assignment_bytes, may_downgrade
from moldau.coordinators.groups.group import NO_MEMBER_ID, Caller
from moldau.coordinators.groups.record_tables import ClassicMemberMetadata, ClassicProtocol
from moldau.coordinators.outcome import Decision, answered
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from moldau.coordinators.consumer.group import ConsumerGroup

MEMBER_ID_IS_REQUIRED = 4  # KIP-394


def join(group: "ConsumerGroup", request: JoinGroupRequest, caller: Caller) -> Decision[JoinGroupResponse]:
    _check_protocols(group, request)
    group.check_room(request.member_id)
    is_new = request.member_id == NO_MEMBER_ID
    member_id = str(UUID(bytes=group.world.new_uuid())) if is_new else request.member_id
    if is_new and request.group_instance_id is None and caller.api_version >= MEMBER_ID_IS_REQUIRED:
        return answered(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    draft = Draft(group.state)
    member = _joining(group, draft, request, member_id)
    subscription = _subscription(request.protocols)
    owned = list(_owned(subscription, group.world.image()))
    settled = group.advance(draft, member, _updated(member, request, subscription, caller), owned)
    group.watch_sync(settled)
    if may_downgrade(draft.state, group.world.config()):
        group.downgrade(draft)
    response = JoinGroupResponse(
        member_id=settled.member_id,
        generation_id=settled.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )
    return group.decided(draft, response)


def _check_protocols(group: "ConsumerGroup", request: JoinGroupRequest) -> None:
    """One protocol at least must be common to all members that may become a classic group again."""
    names = {protocol.name for protocol in request.protocols}
    for member in group.state.classic_members:
        if member.member_id != request.member_id:
            names &= _protocol_names(member)
    if not names or request.protocol_type != CONSUMER_PROTOCOL_TYPE or group.settings.migration == "disabled":
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.group_id} uses another protocol than this member"
        )


def _protocol_names(member: ConsumerMember) -> set[str]:
    return set() if member.classic is None else {each.name for each in member.classic.supported_protocols}


def _joining(group: "ConsumerGroup", draft: Draft, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.state.members.get(member_id) or ConsumerMember(member_id)
    known = group.state.static_member(instance_id)
    if request.member_id != NO_MEMBER_ID:
        return group.known_static(known, instance_id, member_id)
    return ConsumerMember(member_id) if known is None else group.replace_static(draft, known, member_id)


def _subscription(protocols: Sequence[JoinGroupRequestProtocol]) -> ConsumerSubscription:
    try:
        return parse_subscription(protocols[0].metadata)
    except ProtocolError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription cannot be read: {error}") from error


def _owned(subscription: ConsumerSubscription, image: ClusterImage) -> Iterator[tuple[bytes, int]]:
    for each in subscription.owned_partitions:
        topic = image.topics.get(each.topic)
        if topic is not None:
            yield from ((topic.topic_id, partition) for partition in each.partitions)


def _updated(
    member: ConsumerMember, request: JoinGroupRequest, subscription: ConsumerSubscription, caller: Caller
) -> ConsumerMember:
    protocols = [ClassicProtocol(name=each.name, metadata=each.metadata) for each in request.protocols]
    no_timeout = request.rebalance_timeout_ms < 0  # version 0: the session's counts for both
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_names=frozenset(subscription.topics),
        subscribed_regex="",
        rebalance_timeout_ms=request.session_timeout_ms if no_timeout else request.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(session_timeout_ms=request.session_timeout_ms, supported_protocols=protocols),
    )


def sync(group: "ConsumerGroup", request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    protocol = classic.supported_protocols[0]
    is_same = request.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
    if not is_same or request.protocol_name not in (None, protocol.name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member joined with {protocol.name}")
    if group.state.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        group.watch_join(member)
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "there is a new target: join again")
    group.synced(member)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, protocol.metadata, group.world.image()),
    )
    return answered(response)


def heartbeat(group: "ConsumerGroup", request: HeartbeatRequest) -> Decision[HeartbeatResponse]:
    member, _ = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    group.watch_session(member)
    code = ErrorCode.NONE
    if _has_a_step_to_take(group.state, member):
        group.watch_join(member)
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return answered(HeartbeatResponse(error_code=code))


def _has_a_step_to_take(state: ConsumerState, member: ConsumerMember) -> bool:
    if member.epoch < state.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(state, member)


def _waits_for_others(state: ConsumerState, member: ConsumerMember) -> bool:
    return any(
        partition not in member.assigned.get(topic, ()) and (topic, partition) in state.owners
        for topic, partitions in state.target.get(member.member_id, {}).items()
        for partition in partitions
    )


def leave(group: "ConsumerGroup", request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]:
    draft, results, leaving = Draft(group.state), [], []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            leaving.append(_leaving(group, identity))
        except ApiError as error:
            code = error.code
        results.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    if leaving:
        group.fence(draft, leaving)
    return group.decided(draft, LeaveGroupResponse(members=results))


def _leaving(group: "ConsumerGroup", identity: MemberIdentity) -> ConsumerMember:
    """Member, of either protocol, that a LeaveGroup names: the admin client removes members of any group, as in Kafka.

    It names a static member by its instance id alone.
    """
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None and member_id == NO_MEMBER_ID:
        member_id = group.state.static_members.get(instance_id, NO_MEMBER_ID)
    return _member(group, member_id, instance_id)


def _member(group: "ConsumerGroup", member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return group.existing_member(member_id)
    return group.known_static(group.state.static_member(instance_id), instance_id, member_id)


def _classic_member(
    group: "ConsumerGroup", member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = _member(group, member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} does not use the classic protocol")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"the member's generation is {member.epoch}, not {generation}")
