"""Changes of partitions and topics as values: the operations for the store, and the image afterwards.

The law: a change names the version that it builds on, so it happens exactly as planned or not at all. Planning needs no
right: the version is the fence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from moldau.cluster import znodes
from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.store import Check, Create, Delete, Operation, Put

T = TypeVar("T")

CHANGES_PER_MULTI_MAX = 300
"""Changes in one transaction: ZooKeeper takes 1 MiB, nobody else writes meanwhile, and with the embedded store the
event loop does nothing else for some 30 ms."""


class StateChange(NamedTuple):
    """A partition's new leader and ISR; expects `state.partition_epoch`, where -1 makes the node."""

    topic: str
    topic_id: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a change
    state: PartitionImage


class TopicChange(NamedTuple):
    """A topic's new replicas; expects `topic.version`."""

    topic: TopicImage


Change = StateChange | TopicChange


def topic_of(change: Change) -> tuple[str, bytes]:
    """Name and id of the changed topic."""
    if isinstance(change, StateChange):
        return change.topic, change.topic_id
    return change.topic.name, change.topic.topic_id


def new_leaders(image: ClusterImage, changes: Iterable[Change]) -> list[int]:
    """The leaders afterwards, for each partition whose leader changes; NO_LEADER where nobody leads."""
    states = (change for change in changes if isinstance(change, StateChange))
    before = ((change.state.leader, image.partition(change.topic, change.index)) for change in states)
    return [leader for leader, old in before if old is None or old.leader != leader]


def leaders_are_alive(image: ClusterImage, changes: Iterable[Change]) -> list[Operation]:
    """Checks that refuse a plan by which a broker would lead that is gone by now."""
    leaders = sorted(set(new_leaders(image, changes)) - {NO_LEADER})
    return [Check(znodes.broker_path(leader)) for leader in leaders]


def operations(changes: Sequence[Change], controller_epoch: int) -> list[Operation]:
    """The operations that make all of `changes` happen."""
    return [operation for change in changes for operation in _operations(change, controller_epoch)]


def paths(changes: Iterable[Change]) -> list[str]:
    """The nodes that `changes` touch."""
    return [
        znodes.state_path(change.topic, change.index)
        if isinstance(change, StateChange)
        else znodes.topic_path(change.topic.name)
        for change in changes
    ]


def parents(changes: Iterable[Change]) -> list[str]:
    """The nodes that must be there before new states can be made, below the topics themselves; parents before
    children."""
    found: dict[str, None] = {}
    for change in changes:
        if isinstance(change, StateChange) and change.state.partition_epoch < 0:
            found[f"{znodes.topic_path(change.topic)}/partitions"] = None
            found[znodes.partition_path(change.topic, change.index)] = None
    return list(found)


def planned(topic: TopicImage, states: Mapping[int, PartitionImage]) -> list[Change]:
    """The changes that bring a topic's partitions to these states: leaders and ISRs first, as they hold under the old
    replicas too, then all new replicas at once."""
    known = topic.partitions
    changes: list[Change] = [
        StateChange(topic.name, topic.topic_id, index, state)
        for index, state in states.items()
        if state[:3] != known[index][:3]
    ]
    if any(_assignment(state) != _assignment(known[index]) for index, state in states.items()):
        changes.append(TopicChange(topic.with_partitions(states)))
    return changes


def partition_deletions(topic: TopicImage) -> list[Operation]:
    """Deletions of all partitions of a topic that have a state, children first."""
    deleted: list[Operation] = []
    for index, state in enumerate(topic.partitions):
        if state.partition_epoch >= 0:
            deleted.append(Delete(znodes.state_path(topic.name, index)))
            deleted.append(Delete(znodes.partition_path(topic.name, index)))
    return deleted


def topic_deletions(topic: TopicImage) -> list[Operation]:
    """Deletions of all nodes that the image knows of a topic, children first."""
    path = znodes.topic_path(topic.name)
    return [*partition_deletions(topic), Delete(f"{path}/partitions"), Delete(path, topic.version)]


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The values in chunks of `size`."""
    return (values[start : start + size] for start in range(0, len(values), size))


def _assignment(state: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding, state.removing


def applied(image: ClusterImage, changes: Sequence[Change]) -> ClusterImage:
    """The image once `changes` have happened: versions are one higher, and newer states stay.

    A change of a topic that has been deleted or made anew since is dropped: it was of another topic.
    """
    by_topic: dict[str, list[Change]] = {}
    for change in changes:
        by_topic.setdefault(topic_of(change)[0], []).append(change)
    written = {(each.topic, each.index) for each in changes if isinstance(each, StateChange)}
    if not image.overwritten_states.isdisjoint(written):
        image = image._replace(overwritten_states=image.overwritten_states - written)
    return with_topics_if_changed(
        image,
        [_applied_to(topic, by_topic[name]) for name in by_topic if (topic := image.topics.get(name)) is not None],
    )


def with_topics_if_changed(image: ClusterImage, topics: Iterable[TopicImage]) -> ClusterImage:
    """The image with these topics; the same object where they are the same objects."""
    changed = [topic for topic in topics if image.topics.get(topic.name) is not topic]
    return image.with_topics(changed) if changed else image


def with_assignment(old: TopicImage, new: TopicImage) -> TopicImage:
    """`old` with `new`'s replicas and version, and `old`'s leaders and ISRs: the latter have their own versions."""
    known = len(old.partitions)
    partitions = tuple(
        _reassigned(old.partitions[index], state) if index < known else state
        for index, state in enumerate(new.partitions)
    )
    return old._replace(partitions=partitions, version=new.version, lacks_id=new.lacks_id)


def with_added_partitions(old: TopicImage, new: TopicImage) -> TopicImage:
    """`old` with the partitions of `new` that it does not have, and `new`'s version: an older tool that adds partitions
    knows nothing of reassignments, and the old partitions stay as they are."""
    added = new.partitions[len(old.partitions) :]
    return old._replace(partitions=(*old.partitions, *added), version=new.version, lacks_id=new.lacks_id)


def with_state(old: PartitionImage, new: PartitionImage) -> PartitionImage:
    """`old` with `new`'s leader, epochs and ISR, unless it is newer."""
    if new.partition_epoch < old.partition_epoch:
        return old
    merged = new._replace(replicas=old.replicas, adding=old.adding, removing=old.removing)
    return old if merged == old else merged


def with_states(topic: TopicImage, states: Mapping[int, PartitionImage]) -> TopicImage:
    """The topic with `with_state` of each partition; the same object if nothing is newer."""
    known = topic.partitions
    changed = {
        index: merged
        for index, state in states.items()
        if index < len(known) and (merged := with_state(known[index], state)) is not known[index]
    }
    return topic.with_partitions(changed) if changed else topic


def _reassigned(old: PartitionImage, new: PartitionImage) -> PartitionImage:
    merged = old._replace(replicas=new.replicas, adding=new.adding, removing=new.removing)
    return old if merged == old else merged


def _operations(change: Change, controller_epoch: int) -> list[Operation]:
    if isinstance(change, TopicChange):
        topic = change.topic
        data = znodes.topic_json(topic.topic_id, topic.partitions)
        return [Put(znodes.topic_path(topic.name), data, topic.version), Put(znodes.partitions_path(topic.name), data)]
    path, data = znodes.state_path(change.topic, change.index), znodes.state_json(change.state, controller_epoch)
    if change.state.partition_epoch >= 0:
        return [Put(path, data, change.state.partition_epoch)]
    return [Create(path, data)]


def _applied_to(topic: TopicImage, changes: Iterable[Change]) -> TopicImage:
    states: dict[int, PartitionImage] = {}
    for change in changes:
        if isinstance(change, StateChange):
            if change.topic_id == topic.topic_id:
                states[change.index] = change.state._replace(partition_epoch=change.state.partition_epoch + 1)
        elif change.topic.topic_id == topic.topic_id and change.topic.version == topic.version:
            topic = with_assignment(topic, change.topic._replace(version=topic.version + 1))
    return with_states(topic, states)
