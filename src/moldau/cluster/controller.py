"""Decisions of the controller, as values: how each partition should be, given the brokers that are alive.

Law: `reconcile` is level-triggered. It looks at what is, not at what happened, and says what differs from what should
be; applied, it says nothing more. So a decision made from a stale view is repaired by the next look.
- The leader's epoch grows when the leader changes, and only then: the loss of a follower is no news for clients.
- An ISR is never empty. Its members have every committed record; without one that can lead, nobody does, unless the
  topic prefers losing records (`unclean.leader.election.enable`).
"""

from collections.abc import Callable, Collection, Iterable

from moldau.cluster.changes import Change, StateChange, planned
from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from moldau.core.ids import TopicPartition

Unclean = Callable[[TopicImage], bool]


def reconcile(image: ClusterImage, topics: Iterable[TopicImage], unclean: Unclean) -> list[Change]:
    """The changes that `topics` need."""
    sound = frozenset(id_ for id_, broker in image.brokers.items() if not broker.shutting_down and not broker.offline)
    changes: list[Change] = []
    for topic in topics:
        doubtful = [index for index, state in enumerate(topic.partitions) if not _needs_no_change(state, sound)]
        if doubtful:
            changes += _changes(image, topic, doubtful, unclean(topic))
    return changes


def rewritten(image: ClusterImage, changes: Iterable[Change]) -> list[Change]:
    """Known states whose nodes cannot be understood any more, except those that `changes` replace."""
    if not image.overwritten_states:
        return []
    replaced = {(each.topic, each.index) for each in changes if isinstance(each, StateChange)}
    return [
        StateChange(topic.name, topic.topic_id, index, topic.partitions[index])
        for name, index in sorted(image.overwritten_states - replaced)
        if (topic := image.topics.get(name)) and index < len(topic.partitions)
    ]


def _needs_no_change(state: PartitionImage, sound: frozenset[int]) -> bool:
    """Whether `next_state` would surely change nothing; quick, and nearly always True."""
    leader, _leader_epoch, isr, replicas, partition_epoch, adding, removing = state
    return (
        leader in sound
        and leader in isr
        and sound.issuperset(isr)
        and not adding
        and not removing
        and partition_epoch >= 0
        and all(broker in replicas for broker in isr)
    )


def _changes(image: ClusterImage, topic: TopicImage, indexes: Iterable[int], unclean: bool) -> list[Change]:
    states: dict[int, PartitionImage] = {}
    for index in indexes:
        old = topic.partitions[index]
        new = next_state(image, topic.name, index, old, unclean)
        if new is not old:
            states[index] = new
    return planned(topic, states)


def next_state(image: ClusterImage, topic: str, index: int, state: PartitionImage, unclean: bool) -> PartitionImage:
    """The state that a partition should have; the same object if it has it already."""
    if state.partition_epoch < 0:
        return first_state(image, topic, index, state)
    if state.leader_epoch < 0:  # nobody knows it: the replicas say what they have (`restoring`)
        return state
    new = led(image, topic, index, _completed(image, topic, index, state), unclean)
    new = _completed(image, topic, index, new)  # an unclean election may have put a replica that is added in sync
    return state if new == state else new


def first_state(image: ClusterImage, topic: str, index: int, state: PartitionImage) -> PartitionImage:
    """The first state of a partition: its first replica that can leads; replicas whose broker is gone are out of
    sync."""
    able = tuple(broker for broker in state.replicas if image.may_lead(broker, topic, index))
    leader = able[0] if able else NO_LEADER
    return state._replace(leader=leader, leader_epoch=0, isr=able or state.replicas)


def led(image: ClusterImage, topic: str, index: int, state: PartitionImage, unclean: bool) -> PartitionImage:
    """The partition with a leader and an ISR from the replicas that can be relied on."""
    members = [broker for broker in state.isr if broker in state.replicas]
    able = [broker for broker in members if image.may_lead(broker, topic, index)]
    leader = state.leader
    if leader in members and image.is_usable(leader, topic, index) and (leader in able or not able):
        return state._replace(isr=tuple(broker for broker in members if broker == leader or broker in able))
    if able:
        first = next(broker for broker in state.replicas if broker in able)
        return state._replace(leader=first, leader_epoch=state.leader_epoch + 1, isr=tuple(able))
    if unclean:
        behind = next((broker for broker in state.replicas if image.may_lead(broker, topic, index)), NO_LEADER)
        if behind != NO_LEADER:
            return state._replace(leader=behind, leader_epoch=state.leader_epoch + 1, isr=(behind,))
    epoch = state.leader_epoch if leader == NO_LEADER else state.leader_epoch + 1
    return state._replace(leader=NO_LEADER, leader_epoch=epoch, isr=tuple(members) or state.isr)


def _completed(image: ClusterImage, topic: str, index: int, state: PartitionImage) -> PartitionImage:
    """The partition without the replicas that a reassignment removes, once those that it adds are in sync (KIP-455)."""
    if not state.adding and not state.removing:
        return state
    target = state.target
    isr = tuple(broker for broker in state.isr if broker in target)
    arrived = all(broker in isr and image.is_usable(broker, topic, index) for broker in state.adding)
    if not isr or not arrived:
        return state
    return state._replace(replicas=target, adding=(), removing=(), isr=isr)


def plan_return(
    image: ClusterImage, broker_id: int, *, unclean: bool = True, lost: Collection[TopicPartition] = ()
) -> list[Change]:
    """Changes that a broker asks for before it registers.

    After an `unclean` stop it may have lost the end of its logs. It leaves every ISR that can do without it (KIP-841,
    KIP-903). Where nobody else can lead it goes on leading, but in a new epoch, or two records might have one offset
    and one epoch. It has nothing of `lost` partitions any more: it leaves every ISR that has another member, alive or
    not, and leads on only where it is the only replica.
    """
    changes: list[Change] = []
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if broker_id not in state.isr or state.partition_epoch < 0:
                continue
            new = state
            if TopicPartition(topic.name, index) in lost:
                new = _without_its_log(image, topic.name, index, state, broker_id)
            elif unclean:
                new = _returned(image, topic.name, index, state, broker_id)
            if new is not state:
                changes.append(StateChange(topic.name, topic.topic_id, index, new))
    return changes


def _returned(image: ClusterImage, topic: str, index: int, state: PartitionImage, broker_id: int) -> PartitionImage:
    others = tuple(broker for broker in state.isr if broker != broker_id)
    if state.leader != broker_id:
        can_do_without = image.is_usable(state.leader, topic, index)
        return state._replace(isr=others) if can_do_without else state
    heir = next((b for b in state.replicas if b in others and image.may_lead(b, topic, index)), None)
    if heir is None:
        return state._replace(leader_epoch=state.leader_epoch + 1)
    return state._replace(leader=heir, leader_epoch=state.leader_epoch + 1, isr=others)


def _without_its_log(
    image: ClusterImage, topic: str, index: int, state: PartitionImage, broker_id: int
) -> PartitionImage:
    others = tuple(broker for broker in state.isr if broker != broker_id)
    if state.leader != broker_id:
        return state._replace(isr=others) if others else state
    epoch = state.leader_epoch + 1
    if state.replicas == (broker_id,):
        return state._replace(leader_epoch=epoch)
    heir = next((b for b in state.replicas if b in others and image.may_lead(b, topic, index)), NO_LEADER)
    return state._replace(leader=heir, leader_epoch=epoch, isr=others or state.isr)
