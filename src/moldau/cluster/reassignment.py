"""Reassignment of partitions to other brokers (KIP-455): how a move begins and how it is cancelled.

While a partition moves, its replicas are the new ones followed by the old ones that are to go. `controller.next_state`
ends the move when all the new ones are in sync.
"""

from collections.abc import Sequence

from moldau.cluster.controller import led
from moldau.cluster.image import ClusterImage, PartitionImage
from moldau.protocol.errors import ApiError, ErrorCode


def begin(image: ClusterImage, topic: str, index: int, target: Sequence[int]) -> PartitionImage:
    """The partition on its way to `target`, in place of any earlier target; raises ApiError."""
    state = _partition(image, topic, index)
    new = tuple(target)
    _check(image, state, new)
    if new == state.replicas and not state.adding and not state.removing:
        return state
    origin = _origin(state)
    adding = tuple(broker for broker in new if broker not in origin)
    removing = tuple(broker for broker in origin if broker not in new)
    return _moved(image, topic, index, state._replace(replicas=(*new, *removing), adding=adding, removing=removing))


def cancel(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    """The partition with the replicas from before it began to move; raises ApiError."""
    state = _partition(image, topic, index)
    if not state.adding and not state.removing:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    return _moved(image, topic, index, state._replace(replicas=_origin(state), adding=(), removing=()))


def _partition(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    state = image.partition(topic, index)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
    return state


def _origin(state: PartitionImage) -> tuple[int, ...]:
    """The replicas that a partition had before it began to move."""
    return tuple(broker for broker in state.replicas if broker not in state.adding)


def _check(image: ClusterImage, state: PartitionImage, target: tuple[int, ...]) -> None:
    """Raise ApiError unless the target is possible: a replica that is dead may stay, but none is added."""
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs at least one replica")
    if len(set(target)) < len(target):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is twice in {list(target)}")
    dead = [broker for broker in target if broker not in image.brokers and broker not in state.replicas]
    if dead:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers that are not alive: {dead}")


def _moved(image: ClusterImage, topic: str, index: int, state: PartitionImage) -> PartitionImage:
    """The partition with a leader and an ISR among the replicas that are left, of which one at least must have all
    records."""
    if state.partition_epoch < 0:
        return state
    if not any(broker in state.replicas for broker in state.isr):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"no replica of {topic}-{index} that is in sync would be left: an unclean election would be needed",
        )
    if state.leader in state.replicas and all(broker in state.replicas for broker in state.isr):
        return state
    return led(image, topic, index, state, unclean=False)
