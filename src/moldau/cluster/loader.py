"""Reads the tree into an image: all of it at the start, later only what has changed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.cluster import znodes
from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.store import MetadataStore, Node


class Changes(NamedTuple):
    """Stale paths, by what must be read again for them."""

    everything: bool
    controller: bool
    brokers: set[int]
    topics: set[str]
    partitions: set[tuple[str, int]]
    topic_configs: set[str]
    broker_configs: set[str]


def classify(paths: Iterable[str]) -> Changes:
    """A path of a level above single entities means that anything may have changed."""
    changes = Changes(False, False, set(), set(), set(), set(), set())
    for path in paths:
        match path.split("/")[1:]:
            case ["controller"]:
                changes = changes._replace(controller=True)
            case ["brokers", "ids", broker]:
                changes.brokers.add(int(broker))
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                changes.partitions.add((topic, int(partition)))
            case ["brokers", "topics", topic, *_rest]:
                changes.topics.add(topic)
            case ["config", "topics", topic]:
                changes.topic_configs.add(topic)
            case ["config", "brokers", entity]:
                changes.broker_configs.add("" if entity == znodes.WHOLE_CLUSTER else entity)
            case ["brokers" | "config"] | ["brokers", "ids" | "topics"] | ["config", "topics" | "brokers"]:
                changes = changes._replace(everything=True)
    return changes


class MetadataReader:
    """Knows the version of every topic's node besides, which a change of the topic must expect."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._topic_versions: dict[str, int] = {}

    def topic_version(self, name: str) -> int:
        return self._topic_versions[name]

    def note_topic(self, name: str, version: int) -> None:
        self._topic_versions[name] = version

    def forget_topic(self, name: str) -> None:
        self._topic_versions.pop(name, None)

    async def read_all(self) -> ClusterImage:
        cluster_id = await self._store.get(znodes.CLUSTER_ID)
        topics = await self._read_topics(await self._store.children(znodes.TOPICS))
        return ClusterImage(
            znodes.parse_cluster_id(cluster_id.data) if cluster_id else "",
            await self._read_controller(),
            {broker.id: broker for broker in await self._read_brokers(await self._broker_ids())},
            {topic.name: topic for topic in topics},
            {topic.topic_id: topic.name for topic in topics if topic.topic_id != NO_TOPIC_ID},
            await self._read_all_broker_configs(),
        )

    async def read_changed(self, image: ClusterImage, paths: Iterable[str]) -> ClusterImage:
        """`image` with everything that the changed `paths` concern read again."""
        changes = classify(paths)
        if changes.everything:
            return await self.read_all()
        if changes.controller:
            image = image._replace(controller_id=await self._read_controller())
        image = await self._with_brokers(image, sorted(changes.brokers))
        image = await self._with_topics(image, sorted(changes.topics))
        for topic, partition in sorted(changes.partitions):
            if topic not in changes.topics:
                image = await self._with_partition(image, topic, partition)
        for topic in sorted(changes.topic_configs - changes.topics):
            image = await self._with_topic_config(image, topic)
        for entity in sorted(changes.broker_configs):
            node = await self._store.get(znodes.broker_config_path(entity))
            image = image.with_broker_configs(entity, znodes.parse_config(node.data) if node else {})
        return image

    async def read_controller_epoch(self) -> int:
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        return int(node.data) if node else 0

    async def _read_controller(self) -> int:
        node = await self._store.get(znodes.CONTROLLER)
        return znodes.parse_controller(node.data) if node else NO_LEADER

    async def _broker_ids(self) -> list[int]:
        return [int(name) for name in await self._store.children(znodes.BROKER_IDS)]

    async def _read_brokers(self, ids: Sequence[int]) -> list[BrokerInfo]:
        """Those that are alive."""
        nodes = await self._store.get_many([znodes.broker_path(id_) for id_ in ids])
        pairs = zip(ids, nodes, strict=True)
        return [znodes.parse_broker(id_, node.data, node.created) for id_, node in pairs if node]

    async def _read_all_broker_configs(self) -> dict[str, dict[str, str]]:
        names = await self._store.children(znodes.BROKER_CONFIGS)
        nodes = await self._store.get_many([f"{znodes.BROKER_CONFIGS}/{name}" for name in names])
        configs = {
            "" if name == znodes.WHOLE_CLUSTER else name: znodes.parse_config(node.data) if node else {}
            for name, node in zip(names, nodes, strict=True)
        }
        return {entity: values for entity, values in configs.items() if values}

    async def _read_topics(self, names: Sequence[str]) -> list[TopicImage]:
        """Those that exist."""
        nodes = await self._store.get_many([znodes.topic_path(name) for name in names])
        configs = await self._store.get_many([znodes.topic_config_path(name) for name in names])
        found = [
            (name, node, config) for name, node, config in zip(names, nodes, configs, strict=True) if node is not None
        ]
        contents = [znodes.parse_topic(node.data) for _name, node, _config in found]
        states = await self._read_states(
            [(entry[0], assignment) for entry, (_id, assignment) in zip(found, contents, strict=True)]
        )
        self._topic_versions.update({name: node.version for name, node, _config in found})
        return [
            TopicImage(name, topic_id or NO_TOPIC_ID, partitions, znodes.parse_config(config.data) if config else {})
            for (name, _node, config), (topic_id, _assignment), partitions in zip(found, contents, states, strict=True)
        ]

    async def _read_states(
        self, topics: Sequence[tuple[str, list[tuple[int, ...]]]]
    ) -> list[tuple[PartitionImage, ...]]:
        """All partitions of all topics with one `get_many`."""
        paths = [znodes.state_path(name, index) for name, assignment in topics for index in range(len(assignment))]
        nodes = iter(await self._store.get_many(paths))
        return [tuple(_partition(next(nodes), replicas) for replicas in assignment) for _name, assignment in topics]

    async def _with_brokers(self, image: ClusterImage, ids: Sequence[int]) -> ClusterImage:
        if not ids:
            return image
        alive = {broker.id: broker for broker in await self._read_brokers(ids)}
        for id_ in ids:
            image = image.with_broker(alive[id_]) if id_ in alive else image.without_broker(id_)
        return image

    async def _with_topics(self, image: ClusterImage, names: Sequence[str]) -> ClusterImage:
        if not names:
            return image
        existing = {topic.name: topic for topic in await self._read_topics(names)}
        for name in names:
            if name in existing:
                image = image.with_topic(existing[name])
            else:
                self.forget_topic(name)
                image = image.without_topic(name)
        return image

    async def _with_partition(self, image: ClusterImage, name: str, index: int) -> ClusterImage:
        node = await self._store.get(znodes.state_path(name, index))
        topic = image.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return image
        return image.with_topic(topic.with_partition(index, _partition(node, topic.partitions[index].replicas)))

    async def _with_topic_config(self, image: ClusterImage, name: str) -> ClusterImage:
        node = await self._store.get(znodes.topic_config_path(name))
        topic = image.topics.get(name)
        if topic is None:
            return image
        return image.with_topic(topic._replace(configs=znodes.parse_config(node.data) if node else {}))


def _partition(node: Node | None, replicas: tuple[int, ...]) -> PartitionImage:
    if node is None:
        return znodes.NO_STATE._replace(replicas=replicas)
    return znodes.parse_state(node.data, node.version, replicas)
