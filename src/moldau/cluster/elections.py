"""Elections by request: the preferred replica, or any that is alive (KIP-183, KIP-460). Plans, which others carry
out."""

from moldau.cluster.changes import StateChange
from moldau.cluster.controller import led
from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from moldau.protocol.errors import ErrorCode


def preferred(image: ClusterImage, topic: str, index: int) -> StateChange | ErrorCode:
    """Leadership for the first replica, if it is in sync and can lead."""
    state = image.partition(topic, index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    first = state.replicas[0]
    if state.leader == first:
        return ErrorCode.ELECTION_NOT_NEEDED
    if state.partition_epoch < 0 or first not in state.isr or not image.may_lead(first, topic, index):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return _change(image, topic, index, state._replace(leader=first, leader_epoch=state.leader_epoch + 1))


def unclean(image: ClusterImage, topic: str, index: int) -> StateChange | ErrorCode:
    """Any leader for a partition that has none, out of sync if need be."""
    state = image.partition(topic, index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if image.is_usable(state.leader, topic, index):
        return ErrorCode.ELECTION_NOT_NEEDED
    if state.leader_epoch < 0:  # which epoch would be new is not known
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    new = led(image, topic, index, state, unclean=True)
    if state.partition_epoch < 0 or new.leader == NO_LEADER:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return _change(image, topic, index, new)


def imbalanced(image: ClusterImage, percentage: int) -> list[StateChange]:
    """Elections for brokers that lead too few of the partitions that prefer them: others lead more than `percentage` of
    these."""
    preferring: dict[int, int] = {}
    misplaced: dict[int, list[tuple[str, int]]] = {}
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            first = state.replicas[0]
            preferring[first] = preferring.get(first, 0) + 1
            if state.leader != first:
                misplaced.setdefault(first, []).append((topic.name, index))
    possible = [
        preferred(image, topic, index)
        for broker, partitions in misplaced.items()
        if 100 * len(partitions) > percentage * preferring[broker] and broker in image.brokers
        for topic, index in partitions
    ]
    return [change for change in possible if isinstance(change, StateChange)]


def _change(image: ClusterImage, topic: str, index: int, state: PartitionImage) -> StateChange:
    return StateChange(topic, image.topics[topic].topic_id, index, state)
