"""A classic group as the record that survives a restart, and back.

GroupMetadata is a snapshot: the whole group with its members, written when a generation gets its assignment, when the
group falls empty, and when a static member is replaced.
"""

from collections.abc import Mapping

from moldau.coordinators.classic.member import ClassicMember, ClassicMembers
from moldau.coordinators.groups.record_tables import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from moldau.coordinators.records import CoordinatorRecord
from moldau.protocol.messages.k11_join_group import JoinGroupRequestProtocol


def metadata_record(
    group_id: str,
    *,
    protocol_type: str,
    generation: int,
    protocol_name: str | None,
    state_since_ms: int,
    members: ClassicMembers,
    assignment: Mapping[str, bytes],
) -> CoordinatorRecord:
    """The group with these assignments by member id."""
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol_name,
        leader=members.leader_id,
        current_state_timestamp=state_since_ms,
        members=[_to_record(member, protocol_name, assignment.get(member.member_id, b"")) for member in members],
    )
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value)


def tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def members_of(value: GroupMetadataValue) -> ClassicMembers:
    """The members as they were; of their protocols only the selected one was kept."""
    members = ClassicMembers()
    for member in value.members:
        members.add(_from_record(member, value.protocol))
    if value.leader is not None and value.leader in members:
        members.leader_id = value.leader
    return members


def _to_record(member: ClassicMember, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol_name),
        assignment=assignment,
    )


def _from_record(member: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    # version 0 had no rebalance timeout: the session's counted for both
    rebalance_timeout = member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout,
        rebalance_timeout_ms=rebalance_timeout,
        protocols=[JoinGroupRequestProtocol(name=protocol_name or "", metadata=member.subscription)],
        assignment=member.assignment,
    )
