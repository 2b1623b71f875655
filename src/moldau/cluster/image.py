"""The image of the cluster that a broker has: immutable values, replaced as a whole when something changes.

An update copies the mapping it touches and shares everything else, so a change in one of thousands of partitions costs
one tuple and one dictionary of topics. Identity is meaning: an unchanged part is the same object in the new image, and
listeners compare with `is`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NO_LEADER = -1
NO_TOPIC_ID = bytes(16)


class Endpoint(NamedTuple):
    """An address of a broker that clients can connect to."""

    listener: str
    host: str
    port: int
    security: str


class BrokerInfo(NamedTuple):
    """A broker that is alive. `epoch` grows with every registration (KIP-380).

    `shutting_down` and `offline` (topic to partitions whose log directory has failed) are a broker's word to the
    controller and to leaders; they vanish with its registration.
    """

    id: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    epoch: int = -1
    shutting_down: bool = False
    offline: Mapping[str, tuple[int, ...]] = {}

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class PartitionImage(NamedTuple):
    """A partition's replicas and its leader. `partition_epoch` is the version that a change must expect, -1 where there
    is nothing yet to change. `adding` and `removing` are not empty while it is being reassigned (KIP-455)."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment is complete."""
        if not self.removing:
            return self.replicas
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class TopicImage(NamedTuple):
    """A topic. `topic_id` has 16 bytes (KIP-516); `configs` are the topic's own, without the broker's defaults;
    `version` is the one that a change of the topic's assignment must expect."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]
    version: int = 0
    lacks_id: bool = False
    """Whether the topic's node has no id: a tool from before KIP-516 wrote it. The controller puts it back."""

    def is_still(self, now: "TopicImage | None") -> bool:
        """Whether that is the same topic. One from before KIP-516 has no id until the controller writes one into its
        node: no other one has come in its place then."""
        if now is None or now.topic_id == self.topic_id:
            return now is not None
        return self.topic_id == NO_TOPIC_ID and now.version > self.version

    def with_partition(self, index: int, partition: PartitionImage) -> "TopicImage":
        return self._replace(partitions=(*self.partitions[:index], partition, *self.partitions[index + 1 :]))

    def with_partitions(self, changed: Mapping[int, PartitionImage]) -> "TopicImage":
        """The topic with each of these in place of the partition of its index; unknown indexes are left out."""
        partitions = list(self.partitions)
        for index, partition in changed.items():
            if index < len(partitions):
                partitions[index] = partition
        return self._replace(partitions=tuple(partitions))


class ClusterImage(NamedTuple):
    """The cluster. `broker_configs` are the dynamic ones by broker id as text, "" for the whole cluster's;
    `group_configs` are those of groups that have any, whether there is such a group or not."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = {}
    topics: Mapping[str, TopicImage] = {}
    topic_names_by_id: Mapping[bytes, str] = {}
    broker_configs: Mapping[str, Mapping[str, str]] = {}
    controller_epoch: int = 0
    group_configs: Mapping[str, Mapping[str, str]] = {}
    client_metrics: Mapping[str, Mapping[str, str]] = {}
    """Subscriptions to clients' metrics by name (KIP-714)."""
    unreadable_topics: frozenset[str] = frozenset()
    """Topics whose node cannot be understood: they exist, and nothing of theirs may be given up."""
    overwritten_states: frozenset[tuple[str, int]] = frozenset()
    """Partitions whose state is known, though its node cannot be understood: the controller writes it again."""
    features: Mapping[str, int] = {}
    """Finalized levels by feature (KIP-584)."""
    features_epoch: int = -1
    """Grows with every change of the features; -1 before they were read."""

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def is_usable(self, broker: int, topic: str, index: int) -> bool:
        """Whether the broker is alive and has not lost its copy of this partition with a log directory."""
        info = self.brokers.get(broker)
        return info is not None and (not info.offline or index not in info.offline.get(topic, ()))

    def may_lead(self, broker: int, topic: str, index: int) -> bool:
        """Whether the broker's copy is usable and the broker is going to stay."""
        info = self.brokers.get(broker)
        if info is None or info.shutting_down:
            return False
        return not info.offline or index not in info.offline.get(topic, ())

    def offline_replicas(self, topic: str, index: int) -> list[int]:
        """The replicas that are not usable."""
        state = self.partition(topic, index)
        if state is None:
            return []
        return [broker for broker in state.replicas if not self.is_usable(broker, topic, index)]

    def with_topic(self, topic: TopicImage) -> "ClusterImage":
        """The image with this topic added, or in place of the one of its name."""
        return self.with_topics((topic,))

    def with_topics(self, changed: Iterable[TopicImage]) -> "ClusterImage":
        """The image with these topics; the mapping is copied once."""
        topics, renamed = dict(self.topics), list[tuple[TopicImage | None, TopicImage]]()
        for topic in changed:
            old = topics.get(topic.name)
            topics[topic.name] = topic
            if old is None or old.topic_id != topic.topic_id:
                renamed.append((old, topic))
        names = _renamed(self.topic_names_by_id, renamed) if renamed else self.topic_names_by_id
        return self._replace(topics=topics, topic_names_by_id=names)

    def without_topics(self, gone: Iterable[str]) -> "ClusterImage":
        topics, names = dict(self.topics), dict(self.topic_names_by_id)
        for name in gone:
            topic = topics.pop(name, None)
            if topic is not None:
                names.pop(topic.topic_id, None)
        return self._replace(topics=topics, topic_names_by_id=names)

    def with_broker(self, broker: BrokerInfo) -> "ClusterImage":
        return self._replace(brokers={**self.brokers, broker.id: broker})

    def without_broker(self, broker_id: int) -> "ClusterImage":
        return self._replace(brokers={id_: broker for id_, broker in self.brokers.items() if id_ != broker_id})

    def with_broker_configs(self, entity: str, configs: Mapping[str, str]) -> "ClusterImage":
        return self._replace(broker_configs=_reconfigured(self.broker_configs, entity, configs))

    def with_group_configs(self, group: str, configs: Mapping[str, str]) -> "ClusterImage":
        return self._replace(group_configs=_reconfigured(self.group_configs, group, configs))

    def with_client_metrics(self, name: str, configs: Mapping[str, str]) -> "ClusterImage":
        return self._replace(client_metrics=_reconfigured(self.client_metrics, name, configs))


def _reconfigured(
    known: Mapping[str, Mapping[str, str]], entity: str, configs: Mapping[str, str]
) -> Mapping[str, Mapping[str, str]]:
    others = {name: values for name, values in known.items() if name != entity}
    return {**others, entity: dict(configs)} if configs else others


def _renamed(
    names: Mapping[bytes, str], changed: Iterable[tuple[TopicImage | None, TopicImage]]
) -> Mapping[bytes, str]:
    result = dict(names)
    for old, new in changed:
        if old is not None:
            result.pop(old.topic_id, None)
        if new.topic_id != NO_TOPIC_ID:
            result[new.topic_id] = new.name
    return result
