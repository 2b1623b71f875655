"""Answers of a classic group to its members and to tools that ask about it."""

from typing import Protocol

from moldau.coordinators.classic.member import ClassicMember, ClassicMembers
from moldau.coordinators.classic.state import ClassicState
from moldau.protocol.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from moldau.protocol.messages.k14_sync_group import SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribedGroup, DescribedGroupMember


class GroupFacts(Protocol):
    """State of a group from which its answers are made."""

    group_id: str
    state: ClassicState
    generation: int
    protocol_type: str
    protocol_name: str | None
    members: ClassicMembers


def join_answer(group: GroupFacts, member: ClassicMember) -> JoinGroupResponse:
    """The generation a member is part of. The leader alone learns of the others: it is to assign."""
    is_leader = member.member_id == group.members.leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.members.leader_id or "",
        member_id=member.member_id,
        members=_subscriptions(group) if is_leader else [],
    )


def replacement_answer(
    group: GroupFacts, member: ClassicMember, leader_before: str, may_skip: bool
) -> JoinGroupResponse:
    """A static member is back in a stable group: no new assignment is wanted.

    A leader is told so since KIP-814. Before, it was kept from assigning by naming another leader: its former self.
    """
    is_leader = may_skip and member.member_id == group.members.leader_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.members.leader_id or "") if may_skip else leader_before,
        skip_assignment=is_leader,
        member_id=member.member_id,
        members=_subscriptions(group) if is_leader else [],
    )


def sync_answer(group: GroupFacts, member: ClassicMember) -> SyncGroupResponse:
    """A member's share."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def describe(group: GroupFacts) -> DescribedGroup:
    """The group for DescribeGroups. What members subscribe to is told of a stable group only."""
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name or "" if is_stable else "",
        members=[_describe(member, group.protocol_name, is_stable) for member in group.members],
    )


def _describe(member: ClassicMember, protocol_name: str | None, is_stable: bool) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name) if is_stable else b"",
        member_assignment=member.assignment,
    )


def _subscriptions(group: GroupFacts) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members
    ]
