"""Logs on disk that the cluster has no use for any more."""

from enum import Enum

from moldau.cluster.image import NO_TOPIC_ID, ClusterImage
from moldau.log.log import Log


class StrayReason(Enum):
    """Reason why the cluster has no use for a log that was found on disk."""

    TOPIC_GONE = "its topic is gone"
    TOPIC_MADE_ANEW = "its topic was deleted and made anew"
    NOT_A_REPLICA = "this broker is not a replica of it any more"


def why_stray(image: ClusterImage, log: Log, broker_id: int) -> StrayReason | None:
    """Reason why the cluster has no use for a log; None if it has."""
    name, index = log.topic_partition
    if name in image.unreadable_topics:
        return None
    topic = image.topics.get(name)
    if topic is None:
        return StrayReason.TOPIC_GONE
    if (
        log.topic_id is not None
        and NO_TOPIC_ID not in (log.topic_id, topic.topic_id)
        and log.topic_id != topic.topic_id
    ):
        return StrayReason.TOPIC_MADE_ANEW
    if index >= len(topic.partitions) or broker_id not in topic.partitions[index].replicas:
        return StrayReason.NOT_A_REPLICA
    return None


def is_still_stray(image: ClusterImage, topic_id: bytes | None, index: int, broker_id: int) -> bool:
    """Whether a log that was set aside is of no use: its topic is gone, this broker is no replica, or one in sync."""
    name = image.topic_names_by_id.get(topic_id) if topic_id is not None else None
    if name is None:
        return not image.unreadable_topics
    partitions = image.topics[name].partitions
    if index >= len(partitions):
        return True
    return broker_id not in partitions[index].replicas or broker_id in partitions[index].isr
