"""Keeps what the broker has in step with the image: partitions it leads, their logs, their configuration."""

import logging

from moldau.cluster.image import ClusterImage, TopicImage
from moldau.core.ids import TopicPartition
from moldau.core.topic_config import TopicConfig
from moldau.handlers.context import Services
from moldau.protocol.errors import ApiError

log = logging.getLogger(__name__)

WHOLE_CLUSTER = ""


class Follower:
    """Listens to the image."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply the difference."""
        if old.broker_configs is not new.broker_configs:
            self._broker_configs_changed(new)
        if old.topics is new.topics:
            return
        for name, topic in old.topics.items():
            now = new.topics.get(name)
            if now is None or now.topic_id != topic.topic_id:
                self._topic_gone(name)
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is not topic:
                self._topic_changed(topic)

    def _broker_configs_changed(self, image: ClusterImage) -> None:
        services = self._services
        default = image.broker_configs.get(WHOLE_CLUSTER, {})
        own = image.broker_configs.get(str(services.broker_id), {})
        services.config = services.config.with_dynamic(default, own)
        for topic in image.topics.values():
            self._configure(topic)

    def _topic_changed(self, topic: TopicImage) -> None:
        for index, state in enumerate(topic.partitions):
            if state.leader != self._services.broker_id:
                continue
            partition = self._services.replicas.find(topic.name, index)
            if partition is None:
                self._lead(topic, index)
            else:
                partition.leader_epoch = state.leader_epoch
                partition.in_sync_replicas = state.isr
        self._configure(topic)

    def _lead(self, topic: TopicImage, index: int) -> None:
        state = topic.partitions[index]
        try:
            opened = self._services.logs.get_or_create(TopicPartition(topic.name, index), topic.topic_id)
        except ApiError as error:
            log.error("cannot lead %s-%d: %s", topic.name, index, error.message)
            return
        self._services.replicas.add(topic.topic_id, opened, state.leader_epoch, state.isr)

    def _configure(self, topic: TopicImage) -> None:
        config = TopicConfig.of(self._services.config, topic.configs)
        for partition in self._services.replicas.of_topic(topic.name):
            partition.log.config = config

    def _topic_gone(self, name: str) -> None:
        for partition in self._services.replicas.remove_topic(name):
            self._services.logs.delete(partition.topic_partition)
