"""Downgrade of a consumer group to a classic one, when its last member of the consumer protocol has left (KIP-848).

The records alone do it: the tombstones of the consumer group, then the classic group as a whole. Who replays them live
finds a classic group with members that it did not know, and has it rebalance.
"""

from moldau.cluster.image import ClusterImage
from moldau.coordinators.classic import records as classic_records
from moldau.coordinators.classic.member import ClassicMember, ClassicMembers
from moldau.coordinators.classic.subscription_bytes import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerAssignment,
    ConsumerPartitions,
    serialize_assignment,
)
from moldau.coordinators.consumer.member import ConsumerMember, Held
from moldau.coordinators.consumer.settings import ConsumerSettings
from moldau.coordinators.consumer.state import ConsumerState
from moldau.coordinators.groups.record_tables import ClassicMemberMetadata
from moldau.coordinators.groups.world import World
from moldau.coordinators.records import CoordinatorRecord
from moldau.core.broker_config import BrokerConfig
from moldau.protocol.messages.k11_join_group import JoinGroupRequestProtocol


def may_downgrade(state: ConsumerState, config: BrokerConfig) -> bool:
    """Whether only members of the classic protocol are left, and they may be a group by themselves."""
    return (
        0 < len(state.members) == len(state.classic_members)
        and ConsumerSettings.of(config).may_downgrade
        and len(state.members) <= config.int("group.max.size")
    )


def downgraded(state: ConsumerState, world: World) -> list[CoordinatorRecord]:
    """The records that make it a classic group: stable, with what everybody has now."""
    members, image = ClassicMembers(), world.image()
    for member in state.members.values():
        members.add(_downgraded_member(member))
    protocol_name = members.select_protocol()
    assignment = {
        member.member_id: assignment_bytes(
            state.members[member.member_id].assigned, member.metadata(protocol_name), image
        )
        for member in members
    }
    record = classic_records.metadata_record(
        state.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.epoch,
        protocol_name=protocol_name,
        state_since_ms=world.clock.now_ms(),
        members=members,
        assignment=assignment,
    )
    return [*state.tombstones(), record]


def _downgraded_member(member: ConsumerMember) -> ClassicMember:
    classic = member.classic or ClassicMemberMetadata()
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[
            JoinGroupRequestProtocol(name=each.name, metadata=each.metadata) for each in classic.supported_protocols
        ],
    )


def assignment_bytes(held: Held, subscription: bytes, image: ClusterImage) -> bytes:
    """An assignment as consumers of the classic protocol read it, in the version of their subscription."""
    names = image.topic_names_by_id
    partitions = [
        ConsumerPartitions(topic=names[topic], partitions=sorted(held[topic]))
        for topic in sorted(held)
        if topic in names
    ]
    version = min(int.from_bytes(subscription[:2], "big"), ConsumerAssignment.versions[1])
    return serialize_assignment(ConsumerAssignment(assigned_partitions=partitions), version)
