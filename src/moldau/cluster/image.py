"""What a broker knows of the cluster: immutable values, replaced as a whole when something changes.

An update copies the mapping it touches and shares everything else, so a change in one of thousands of partitions
costs one tuple and one dictionary of topics.
"""

from collections.abc import Mapping
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
    """A broker that is alive. `epoch` grows with every registration (KIP-380)."""

    id: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    epoch: int = -1

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class PartitionImage(NamedTuple):
    """A partition's replicas and who leads them. `partition_epoch` is the version that a change must expect."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0


class TopicImage(NamedTuple):
    """A topic. `topic_id` has 16 bytes (KIP-516); `configs` are the topic's own, without the broker's defaults."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str]

    def with_partition(self, index: int, partition: PartitionImage) -> "TopicImage":
        return self._replace(partitions=(*self.partitions[:index], partition, *self.partitions[index + 1 :]))


class ClusterImage(NamedTuple):
    """The cluster. `broker_configs` are the dynamic ones by broker id as text, "" for the whole cluster's."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, BrokerInfo] = {}
    topics: Mapping[str, TopicImage] = {}
    topic_names_by_id: Mapping[bytes, str] = {}
    broker_configs: Mapping[str, Mapping[str, str]] = {}

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def with_topic(self, topic: TopicImage) -> "ClusterImage":
        """With this topic added, or in place of the one of its name."""
        old = self.topics.get(topic.name)
        names = self.topic_names_by_id
        if old is None or old.topic_id != topic.topic_id:
            names = {id_: name for id_, name in names.items() if old is None or id_ != old.topic_id}
            if topic.topic_id != NO_TOPIC_ID:
                names[topic.topic_id] = topic.name
        return self._replace(topics={**self.topics, topic.name: topic}, topic_names_by_id=names)

    def without_topic(self, name: str) -> "ClusterImage":
        topics, names = dict(self.topics), dict(self.topic_names_by_id)
        gone = topics.pop(name, None)
        if gone is not None:
            names.pop(gone.topic_id, None)
        return self._replace(topics=topics, topic_names_by_id=names)

    def with_broker(self, broker: BrokerInfo) -> "ClusterImage":
        return self._replace(brokers={**self.brokers, broker.id: broker})

    def without_broker(self, broker_id: int) -> "ClusterImage":
        return self._replace(brokers={id_: broker for id_, broker in self.brokers.items() if id_ != broker_id})

    def with_broker_configs(self, entity: str, configs: Mapping[str, str]) -> "ClusterImage":
        others = {name: values for name, values in self.broker_configs.items() if name != entity}
        return self._replace(broker_configs={**others, entity: dict(configs)} if configs else others)
