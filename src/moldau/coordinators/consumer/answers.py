"""A consumer group as it is told: assignments in heartbeats, and the description of key 69."""

from collections.abc import Collection, Mapping

from moldau.cluster.image import ClusterImage
from moldau.coordinators.consumer.member import ConsumerMember, Held
from moldau.coordinators.consumer.state import ConsumerState
from moldau.protocol.messages import k68_consumer_group_heartbeat as heartbeat
from moldau.protocol.messages import k69_consumer_group_describe as describe

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_ASKED = -(2**31)
"""Value for "not asked" where a client may ask for its authorized operations (KIP-430)."""


def assignment_told(held: Held) -> heartbeat.Assignment:
    topics = [heartbeat.TopicPartitions(topic_id=topic, partitions=sorted(held[topic])) for topic in sorted(held)]
    return heartbeat.Assignment(topic_partitions=topics)


def described(state: ConsumerState, assignor: str, image: ClusterImage, operations: int) -> describe.DescribedGroup:
    return describe.DescribedGroup(
        group_id=state.group_id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=assignor,
        members=[_member(member, state, image) for member in state.members.values()],
        authorized_operations=operations,
    )


def _member(member: ConsumerMember, state: ConsumerState, image: ClusterImage) -> describe.Member:
    return describe.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex or None,
        assignment=_assignment(_all_held(member), image),
        target_assignment=_assignment(state.target.get(member.member_id, {}), image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _all_held(member: ConsumerMember) -> dict[bytes, set[int]]:
    """Partitions that a member holds, with those that it still has to give up: tools see them too."""
    held: dict[bytes, set[int]] = {}
    for topic, partition in member.holds:
        held.setdefault(topic, set()).add(partition)
    return held


def _assignment(partitions: Mapping[bytes, Collection[int]], image: ClusterImage) -> describe.Assignment:
    """Topics that are gone meanwhile have no name to tell."""
    names = image.topic_names_by_id
    return describe.Assignment(
        topic_partitions=[
            describe.TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=sorted(partitions[topic]))
            for topic in sorted(partitions)
            if topic in names
        ]
    )
