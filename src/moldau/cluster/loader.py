"""Loader of the image from the store's tree: all of it at the start, later only the changed paths.

Law: a reading is applied to the image as it is when the reading is complete, not as it was when it began. Nodes that
this broker has written and published in between have a higher version than the reading, and stay.

Tools of any era write this tree. A node in an older form never changes what a topic is: its id is kept, partitions are
only added. A node that cannot be understood changes nothing at all: the known value stays, the node is named in the
log, and the controller writes a topic's node again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.cluster import znodes
from moldau.cluster.changes import with_added_partitions, with_assignment, with_states, with_topics_if_changed
from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.restorer import kept_replicas, states_of
from moldau.cluster.store import MetadataStore, Node

log = logging.getLogger(__name__)

Delta = Callable[[ClusterImage], ClusterImage]

T = TypeVar("T")

NO_CONFIGS: Mapping[str, str] = {}
NODES_AT_ONCE_MAX = 500
"""Nodes that one call reads: some 10 ms with the embedded store."""


class Changes(NamedTuple):
    """Stale paths, by the kind of entity that must be read again for them."""

    everything: bool
    controller: bool
    brokers: set[int]
    topics: set[str]
    partitions: dict[str, set[int]]
    topic_configs: set[str]
    broker_configs: set[str]
    group_configs: set[str]
    client_metrics: set[str]
    features: bool = False


def classify(paths: Iterable[str]) -> Changes:
    """The changes behind stale paths. A path of a level above single entities means that anything may have changed."""
    changes = Changes(False, False, set(), set(), {}, set(), set(), set(), set())
    for path in paths:
        match path.split("/")[1:]:
            case ["controller" | "controller_epoch"]:
                changes = changes._replace(controller=True)
            case ["feature"]:
                changes = changes._replace(features=True)
            case ["brokers", "ids", broker] if broker.isdecimal():
                changes.brokers.add(int(broker))
            case ["brokers", "topics", topic, "partitions", partition, "state"] if partition.isdecimal():
                changes.partitions.setdefault(topic, set()).add(int(partition))
            case ["brokers", "topics", topic]:
                changes.topics.add(topic)
            case ["config", "topics", topic]:
                changes.topic_configs.add(topic)
            case ["config", "brokers", entity]:
                changes.broker_configs.add("" if entity == znodes.WHOLE_CLUSTER else entity)
            case ["config", "groups", entity]:
                changes.group_configs.add(znodes.parse_entity(entity))
            case ["config", "client-metrics", entity]:
                changes.client_metrics.add(znodes.parse_entity(entity))
            case (
                ["brokers" | "config"]
                | ["brokers", "ids" | "topics"]
                | ["config", "topics" | "brokers" | "groups" | "client-metrics"]
            ):
                changes = changes._replace(everything=True)
    return changes


class Controller(NamedTuple):
    """The controller's broker id, and the epoch of the last controller."""

    broker_id: int
    epoch: int


class Features(NamedTuple):
    """Finalized levels, and the version of their node."""

    levels: Mapping[str, int]
    epoch: int


class Reading(NamedTuple):
    """Entities that were read; None for one that is not there."""

    cluster_id: str
    controller: Controller
    brokers: Mapping[int, BrokerInfo | None]
    topics: Mapping[str, TopicImage | None]
    states: Mapping[str, Mapping[int, PartitionImage]]
    topic_configs: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[str, Mapping[str, str]]
    group_configs: Mapping[str, Mapping[str, str]]
    client_metrics: Mapping[str, Mapping[str, str]]
    unreadable: frozenset[str]
    """Topics that were read and whose node cannot be understood."""
    is_overwritten: Mapping[tuple[str, int], bool]
    """Whether the node of a state cannot be understood while the state is known, for each state that was read."""
    features: Features | None
    """None where they were not looked at, or cannot be understood."""

    def applied_to(self, image: ClusterImage) -> ClusterImage:
        """`image` with this reading, where it is newer; unchanged parts are the same objects."""
        image = image._replace(
            cluster_id=self.cluster_id, controller_id=self.controller.broker_id, controller_epoch=self.controller.epoch
        )
        image = self._with_brokers(image)
        image = self._with_topics(image)
        image = with_topics_if_changed(image, self._with_states(image))
        image = self._with_overwritten(image)
        image = with_topics_if_changed(image, self._with_topic_configs(image))
        for entity, configs in self.broker_configs.items():
            if image.broker_configs.get(entity, {}) != configs:
                image = image.with_broker_configs(entity, configs)
        for group, configs in self.group_configs.items():
            if image.group_configs.get(group, {}) != configs:
                image = image.with_group_configs(group, configs)
        for name, configs in self.client_metrics.items():
            if image.client_metrics.get(name, {}) != configs:
                image = image.with_client_metrics(name, configs)
        if self.features is not None and self.features.epoch > image.features_epoch:
            image = image._replace(features=self.features.levels, features_epoch=self.features.epoch)
        return image

    def _with_brokers(self, image: ClusterImage) -> ClusterImage:
        for id_, broker in self.brokers.items():
            if image.brokers.get(id_) != broker:
                image = image.without_broker(id_) if broker is None else image.with_broker(broker)
        return image

    def _with_topics(self, image: ClusterImage) -> ClusterImage:
        unreadable = image.unreadable_topics - self.topics.keys() | self.unreadable
        if unreadable != image.unreadable_topics:
            image = image._replace(unreadable_topics=unreadable)
        gone = [name for name, read in self.topics.items() if read is None and name in image.topics]
        merged = [_merged(image.topics.get(name), read) for name, read in self.topics.items() if read is not None]
        return with_topics_if_changed(image.without_topics(gone) if gone else image, merged)

    def _with_overwritten(self, image: ClusterImage) -> ClusterImage:
        found = {partition for partition, is_overwritten in self.is_overwritten.items() if is_overwritten}
        overwritten = image.overwritten_states - self.is_overwritten.keys() | found
        return image if overwritten == image.overwritten_states else image._replace(overwritten_states=overwritten)

    def _with_states(self, image: ClusterImage) -> Iterable[TopicImage]:
        for name, states in self.states.items():
            topic = image.topics.get(name)
            if topic is not None:
                yield with_states(topic, states)

    def _with_topic_configs(self, image: ClusterImage) -> Iterable[TopicImage]:
        for name, configs in self.topic_configs.items():
            topic = image.topics.get(name)
            if topic is not None and topic.configs != configs:
                yield topic._replace(configs=configs)


def _merged(old: TopicImage | None, read: TopicImage) -> TopicImage:
    """A topic whose assignment, states and configuration are each the newer by their own version: none goes back."""
    if old is None or old.topic_id != read.topic_id:
        return read
    topic = old
    if read.version > old.version:
        topic = with_added_partitions(old, read) if read.lacks_id else with_assignment(old, read)
    topic = with_states(topic, dict(enumerate(read.partitions)))
    return topic if topic.configs == read.configs else topic._replace(configs=read.configs)


class MetadataReader:
    """Reader of the tree: every kind of node with one round trip, whatever the number."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def read_all(self, base: ClusterImage) -> Delta:
        """A reading of everything in the tree, and of everything in `base`."""
        return (await self._read(base, await self._all(base))).applied_to

    async def read_changed(self, base: ClusterImage, paths: Iterable[str]) -> Delta:
        """A reading of everything that the changed `paths` concern."""
        changes = classify(paths)
        return (await self._read(base, await self._all(base) if changes.everything else changes)).applied_to

    async def topic_ids(self, names: Sequence[str], base: ClusterImage) -> dict[str, bytes]:
        """Ids of the topics among `names` that exist."""
        found = await self._store.get_many([znodes.topic_path(name) for name in names])
        nodes = {name: node for name, node in zip(names, found, strict=True) if node}
        ids: dict[str, bytes] = {}
        for name, node in nodes.items():
            try:
                ids[name] = znodes.parse_topic_id(node.data)
            except znodes.MalformedNode:
                ids[name] = base.topics[name].topic_id if name in base.topics else NO_TOPIC_ID
        lacking = {name: nodes[name] for name, topic_id in ids.items() if topic_id == NO_TOPIC_ID}
        return {**ids, **await self._kept_ids(base, lacking)}

    async def _kept_ids(self, base: ClusterImage, lacking: Mapping[str, Node]) -> dict[str, bytes]:
        """Ids of topics whose nodes have none: kept beside them, or known from before the node was rewritten."""
        names = sorted(lacking)
        nodes = await self._read_nodes([znodes.partitions_path(name) for name in names])
        kept: dict[str, bytes] = {}
        for name, node in zip(names, nodes, strict=True):
            known = base.topics.get(name)
            found = znodes.parse_kept_id(node.data) if node else None
            if found is None and known is not None and lacking[name].version > known.version:
                found = known.topic_id
            if found is not None:
                kept[name] = found
        return kept

    async def _all(self, base: ClusterImage) -> Changes:
        topics = {*await self._store.children(znodes.TOPICS), *base.topics}
        registered = await self._store.children(znodes.BROKER_IDS)
        brokers = {*(int(name) for name in registered if name.isdecimal()), *base.brokers}
        entities = await self._store.children(znodes.BROKER_CONFIGS)
        configs = {"" if name == znodes.WHOLE_CLUSTER else name for name in entities}
        groups = map(znodes.parse_entity, await self._store.children(znodes.GROUP_CONFIGS))
        subscriptions = map(znodes.parse_entity, await self._store.children(znodes.CLIENT_METRICS_CONFIGS))
        return Changes(
            True,
            True,
            brokers,
            topics,
            {},
            set(),
            {*configs, *base.broker_configs},
            {*groups, *base.group_configs},
            {*subscriptions, *base.client_metrics},
            True,
        )

    async def _read(self, base: ClusterImage, changes: Changes) -> Reading:
        controller = Controller(base.controller_id, base.controller_epoch)
        is_overwritten: dict[tuple[str, int], bool] = {}
        topics = await self._read_topics(base, changes, is_overwritten)
        partitions = {name: sorted(changes.partitions[name]) for name in changes.partitions if name not in topics}
        return Reading(
            await self._read_cluster_id() if changes.everything else base.cluster_id,
            await self._read_controller() if changes.controller else controller,
            await self._read_brokers(sorted(changes.brokers)),
            topics,
            await self._read_states(base, partitions, is_overwritten),
            await self._read_topic_configs(sorted(changes.topic_configs - changes.topics)),
            await self._read_broker_configs(sorted(changes.broker_configs)),
            await self._read_configs(znodes.group_config_path, sorted(changes.group_configs)),
            await self._read_configs(znodes.client_metrics_config_path, sorted(changes.client_metrics)),
            frozenset(changes.topics - topics.keys()),
            is_overwritten,
            await self._read_features() if changes.features else None,
        )

    async def _read_features(self) -> Features | None:
        node = await self._store.get(znodes.FEATURES)
        levels = _understood(znodes.FEATURES, lambda: znodes.parse_features(node.data)) if node else None
        return Features(levels, node.version) if node and levels is not None else None

    async def _read_cluster_id(self) -> str:
        node = await self._store.get(znodes.CLUSTER_ID)
        return znodes.parse_cluster_id(node.data) if node else ""

    async def _read_controller(self) -> Controller:
        node, epoch = await self._store.get_many([znodes.CONTROLLER, znodes.CONTROLLER_EPOCH])
        owner = _understood(znodes.CONTROLLER, lambda: znodes.parse_controller(node.data)) if node else None
        return Controller(
            NO_LEADER if owner is None else owner, znodes.parse_controller_epoch(epoch.data) if epoch else 0
        )

    async def _read_brokers(self, ids: Sequence[int]) -> dict[int, BrokerInfo | None]:
        nodes = await self._read_nodes([znodes.broker_path(id_) for id_ in ids])
        return {
            id_: _understood(znodes.broker_path(id_), partial(znodes.parse_broker, id_, node.data, node.created))
            if node
            else None
            for id_, node in zip(ids, nodes, strict=True)
        }

    async def _read_topic_configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        nodes = await self._read_nodes([znodes.topic_config_path(name) for name in names])
        return _configs(znodes.topic_config_path, names, nodes)

    async def _read_broker_configs(self, entities: Sequence[str]) -> dict[str, dict[str, str]]:
        nodes = await self._read_nodes([znodes.broker_config_path(entity) for entity in entities])
        return _configs(znodes.broker_config_path, entities, nodes)

    async def _read_configs(self, path_of: Callable[[str], str], entities: Sequence[str]) -> dict[str, dict[str, str]]:
        nodes = await self._read_nodes([path_of(entity) for entity in entities])
        return _configs(path_of, entities, nodes)

    async def _read_topics(
        self, base: ClusterImage, changes: Changes, is_overwritten: dict[tuple[str, int], bool]
    ) -> dict[str, TopicImage | None]:
        names = sorted(changes.topics)
        nodes = await self._read_nodes([znodes.topic_path(name) for name in names])
        known = {name: topic.configs for name in names if (topic := base.topics.get(name))}
        configs = {**dict.fromkeys(names, NO_CONFIGS), **known, **await self._read_topic_configs(names)}
        read: dict[str, TopicImage | None] = {}
        for name, node in zip(names, nodes, strict=True):
            topic = node and _topic(name, node, configs[name], base.topics.get(name))
            if topic is not None or node is None:  # else it is there, and nobody knows what it is
                read[name] = topic
        topics = await self._with_kept_ids(base, read, dict(zip(names, nodes, strict=True)))
        topics = await self._with_kept_replicas(base, topics)
        found = [topic for topic in topics.values() if topic is not None]
        unknown = {topic.name: _unknown_states(base, changes, topic) for topic in found}
        same = base.without_topics([topic.name for topic in found if not _is_known(base, topic)])
        states = await self._read_states(same, unknown, is_overwritten)
        return {name: topic and with_states(topic, states[name]) for name, topic in topics.items()}

    async def _with_kept_ids(
        self, base: ClusterImage, topics: Mapping[str, TopicImage | None], nodes: Mapping[str, Node | None]
    ) -> dict[str, TopicImage | None]:
        lacking = {name: node for name, node in nodes.items() if node and (one := topics.get(name)) and one.lacks_id}
        kept = await self._kept_ids(base, lacking)
        return {
            name: topic._replace(topic_id=kept[name]) if topic and name in kept else topic
            for name, topic in topics.items()
        }

    async def _with_kept_replicas(
        self, base: ClusterImage, topics: Mapping[str, TopicImage | None]
    ) -> dict[str, TopicImage | None]:
        """Topics that an older tool has rewritten, as they were before; without topics of which that is not known."""
        kept = dict(topics)
        for name, topic in topics.items():
            if topic is None or not topic.lacks_id:
                continue
            if _is_known(base, topic):  # so that states of partitions that the node leaves out are read, too
                kept[name] = with_added_partitions(base.topics[name], topic)._replace(configs=topic.configs)
            else:
                complete = kept_replicas(topic, await states_of(self._store, name))
                if complete is None:
                    log.error("%s has fewer partitions than before; it is left out", znodes.topic_path(name))
                    del kept[name]
                else:
                    kept[name] = complete
        return kept

    async def _read_states(
        self,
        base: ClusterImage,
        partitions: Mapping[str, Sequence[int]],
        is_overwritten: dict[tuple[str, int], bool],
    ) -> dict[str, dict[int, PartitionImage]]:
        """States that exist and that `base` does not have already, of all topics with one `get_many`."""
        paths = [znodes.state_path(name, index) for name, indexes in partitions.items() for index in indexes]
        nodes = iter(await self._read_nodes(paths))
        return {name: _states(base, name, indexes, nodes, is_overwritten) for name, indexes in partitions.items()}

    async def _read_nodes(self, paths: Sequence[str]) -> Sequence[Node | None]:
        """The nodes at `paths`, in several readings if they are many: each holds the event loop, and changes in between
        are reported."""
        nodes: list[Node | None] = []
        for start in range(0, len(paths), NODES_AT_ONCE_MAX):
            if start:
                await asyncio.sleep(0)
            nodes += await self._store.get_many(paths[start : start + NODES_AT_ONCE_MAX])
        return nodes


def _is_known(base: ClusterImage, topic: TopicImage) -> bool:
    known = base.topics.get(topic.name)
    return known is not None and known.topic_id == topic.topic_id


def _unknown_states(base: ClusterImage, changes: Changes, topic: TopicImage) -> Sequence[int]:
    """Partitions whose state must be read: of a known topic only new and stale ones, as a state has its own
    notification."""
    if changes.everything or not _is_known(base, topic):
        return range(len(topic.partitions))
    stale = changes.partitions.get(topic.name, set())
    return sorted({*range(len(base.topics[topic.name].partitions), len(topic.partitions)), *stale})


def _states(
    base: ClusterImage,
    name: str,
    indexes: Iterable[int],
    nodes: Iterator[Node | None],
    is_overwritten: dict[tuple[str, int], bool],
) -> dict[int, PartitionImage]:
    """States from a node for each index. A state of the version that is known was written by ourselves."""
    states = base.topics[name].partitions if name in base.topics else ()
    found: dict[int, PartitionImage] = {}
    for index, node in zip(indexes, nodes, strict=False):
        known = states[index] if index < len(states) else znodes.NO_STATE
        if node and (known.partition_epoch != node.version or (name, index) in base.overwritten_states):
            read = _understood(znodes.state_path(name, index), partial(znodes.parse_state, node.data, node.version))
            found[index] = _still_known(known, node.version) if read is None else read
            is_overwritten[name, index] = read is None and known.leader_epoch >= 0
    return found


def _still_known(known: PartitionImage, version: int) -> PartitionImage:
    """The known state of a partition whose node was overwritten and cannot be understood. If the node has changed
    more than once since, its leader may have taken others out of the ISR: only the leader itself has all records for
    sure."""
    is_all_known = version - known.partition_epoch <= 1
    isr = known.isr if is_all_known or known.leader not in known.isr else (known.leader,)
    return known._replace(isr=isr, partition_epoch=version)


def _understood(path: str, parse: Callable[[], T]) -> T | None:
    """The result of `parse` for a node; None, and a line in the log, where it cannot be understood."""
    try:
        return parse()
    except znodes.MalformedNode as error:
        log.error("%s is left as it was: %s", path, error)
        return None


def _topic(name: str, node: Node, configs: Mapping[str, str], known: TopicImage | None) -> TopicImage | None:
    """The topic at a node. If the node cannot be understood, the known topic, which the controller writes again; None
    if there is none."""
    read = _understood(znodes.topic_path(name), lambda: znodes.parse_topic(node.data))
    if read is None:
        is_same = known is not None and node.version > known.version
        return known._replace(configs=configs, version=node.version, lacks_id=True) if known and is_same else None
    topic_id, partitions = read
    return TopicImage(
        name, topic_id or NO_TOPIC_ID, tuple(partitions), configs, node.version, lacks_id=topic_id is None
    )


def _configs(
    path_of: Callable[[str], str], entities: Sequence[str], nodes: Sequence[Node | None]
) -> dict[str, dict[str, str]]:
    """Settings by entity, without entities whose node cannot be understood: these keep their settings."""
    found: dict[str, dict[str, str]] = {}
    for entity, node in zip(entities, nodes, strict=True):
        configs = _understood(path_of(entity), partial(znodes.parse_config, node.data)) if node else {}
        if configs is not None:
            found[entity] = configs
    return found
