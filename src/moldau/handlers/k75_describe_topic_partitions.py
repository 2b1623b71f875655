"""DescribeTopicPartitions, version 0 (KIP-966).

Topics and their partitions in the order of their names, page by page: an answer holds as many partitions as the request
and `max.request.partition.size.limit` allow, and a cursor to where the next one starts. No topics in the request means
all of them. A cursor with a negative partition, or to a topic that the request does not name, is INVALID_REQUEST.
A leader that is not alive is told as -1 with LEADER_NOT_AVAILABLE.

Gaps: there are no eligible leader replicas beyond the in-sync ones, so those lists are empty.
"""

from collections.abc import Iterable, Iterator
from heapq import nsmallest

from moldau.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.topic_names import validate_topic_name
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from moldau.requests.authorization import DESCRIBE, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.topic_lookup import is_internal


def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> DescribeTopicPartitionsResponse:
    names = {topic.name for topic in request.topics}
    if not _is_sane(request.cursor, names):
        return DescribeTopicPartitionsResponse(topics=[_refusal(name) for name in sorted(names)])
    image = context.services.metadata.image
    limit_max = context.services.config.int("max.request.partition.size.limit")
    limit = max(1, min(limit_max, request.response_partition_limit))
    page = _Page(request.cursor, limit, context)
    asked = names or (name for name in image.topics if context.may(DESCRIBE, TOPIC, name))
    topics = list(page.cut(nsmallest(limit + 1, page.left(asked)), image))
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=page.next_cursor)


def _is_sane(cursor: Cursor | None, names: set[str]) -> bool:
    return cursor is None or (cursor.partition_index >= 0 and (not names or cursor.topic_name in names))


def _refusal(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)


class _Page:
    """One answer's worth of partitions."""

    def __init__(self, cursor: Cursor | None, limit: int, context: RequestContext) -> None:
        self._context = context
        self._from_topic = cursor.topic_name if cursor else ""
        self._from_partition = cursor.partition_index if cursor else 0
        self._room = limit
        self.next_cursor: Cursor | None = None

    def left(self, names: Iterable[str]) -> Iterator[str]:
        """Topics that were not in the pages before."""
        return (name for name in names if name >= self._from_topic)

    def cut(self, names: list[str], image: ClusterImage) -> Iterator[DescribeTopicPartitionsResponseTopic]:
        for name in names:
            if self._room == 0:
                self.next_cursor = Cursor(topic_name=name, partition_index=0)
                return
            is_allowed = self._context.may(DESCRIBE, TOPIC, name)
            topic = image.topics.get(name) if is_allowed else None
            if topic is None:
                self._room -= 1  # not to tell of any number of topics that do not exist
                yield self._missing(name) if is_allowed else _denied(name)
            else:
                yield self._topic(topic, image)
            if self.next_cursor is not None:
                return

    def _topic(self, topic: TopicImage, image: ClusterImage) -> DescribeTopicPartitionsResponseTopic:
        first = self._from_partition if topic.name == self._from_topic else 0
        partitions = list(enumerate(topic.partitions))[first : first + self._room]
        self._room -= max(1, len(partitions))
        end = first + len(partitions)
        if end < len(topic.partitions):
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=end)
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[_partition(image, topic.name, index, partition) for index, partition in partitions],
            topic_authorized_operations=self._context.rights(TOPIC, topic.name),
        )

    def _missing(self, name: str) -> DescribeTopicPartitionsResponseTopic:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            validate_topic_name(name)
        except ApiError as error:
            code = ErrorCode(error.code)
        rights = self._context.rights(TOPIC, name)
        return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=rights)


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _partition(
    image: ClusterImage, topic: str, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    is_led = image.is_usable(partition.leader, topic, index)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if is_led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=image.offline_replicas(topic, index),
    )
