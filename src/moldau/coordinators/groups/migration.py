"""A group with members goes from one protocol to the other without stopping (KIP-848, online migration).

Up, here: the first member of the consumer protocol joins a classic group of consumers. Everybody keeps what it has,
and the generation becomes the epoch. In between, `classic_side` serves those that still speak the classic protocol.
Down, in `downgrade`: the last member of the consumer protocol has left, and the others are a classic group again.
`group.consumer.migration.policy` says which ways are open.
"""

from collections.abc import Iterator

from moldau.cluster.image import ClusterImage
from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.classic.member import ClassicMember
from moldau.coordinators.classic.subscription_bytes import parse_assignment, parse_subscription
from moldau.coordinators.consumer import records
from moldau.coordinators.consumer.member import ConsumerMember
from moldau.coordinators.consumer.settings import ConsumerSettings
from moldau.coordinators.consumer.subscriptions import names_of_all, subscribed
from moldau.coordinators.groups.record_tables import ClassicMemberMetadata, ClassicProtocol
from moldau.coordinators.groups.world import World
from moldau.coordinators.records import CoordinatorRecord
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError


def upgraded(group: ClassicGroup, world: World) -> list[CoordinatorRecord]:
    """The records that make a classic group a consumer group; raises GROUP_ID_NOT_FOUND where that cannot be."""
    _check_upgrade(group, ConsumerSettings.of(world.config()))
    image, group_id, epoch = world.image(), group.group_id, group.generation
    try:
        members = [_upgraded_member(member, group, image) for member in group.members]
    except ProtocolError as error:
        raise _cannot(group, f"a member's data cannot be read: {error}") from error
    targets = {
        member.member_id: {topic: frozenset(held) for topic, held in member.assigned.items()} for member in members
    }
    return [
        *group.tombstones(),
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, subscribed(names_of_all(members, {}), image).metadata_hash),
        *(records.member_target(group_id, member_id, target) for member_id, target in targets.items()),
        records.target_epoch(group_id, epoch, 0),
        *(records.member_current(group_id, member) for member in members),
    ]


def _check_upgrade(group: ClassicGroup, settings: ConsumerSettings) -> None:
    if not settings.may_upgrade:
        raise _cannot(group, "group.consumer.migration.policy does not allow it")
    if not group.uses_consumer_protocol:
        raise _cannot(group, "its members are no consumers")
    if len(group.members) > settings.size_max:
        raise _cannot(group, "it has too many members")


def _cannot(group: ClassicGroup, reason: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} cannot become a consumer group: {reason}")


def _upgraded_member(member: ClassicMember, group: ClassicGroup, image: ClusterImage) -> ConsumerMember:
    subscription = parse_subscription(member.metadata(group.protocol_name) or member.protocols[0].metadata)
    if subscription.user_data:
        raise _cannot(group, "an assignor of the clients' own is in use")
    protocols = [ClassicProtocol(name=each.name, metadata=each.metadata) for each in member.protocols]
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=dict(_assigned(member, group.generation, image)),
    )


def _assigned(member: ClassicMember, epoch: int, image: ClusterImage) -> Iterator[tuple[bytes, dict[int, int]]]:
    for each in parse_assignment(member.assignment).assigned_partitions:
        topic = image.topics.get(each.topic)
        if topic is not None and each.partitions:
            yield topic.topic_id, dict.fromkeys(each.partitions, epoch)
