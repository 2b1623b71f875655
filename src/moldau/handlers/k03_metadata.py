"""Metadata, versions 0 to 13.

Who leads which partition, at the addresses of the listener that the client came through.

- Version 0 asks for all topics with an empty list, later ones with null; an empty list then means none.
- A topic that does not exist is created if `auto.create.topics.enable` and the request (4+) allow it. The answer waits
  for that, so the first try already finds the topic.
- 10+: topic ids are told, 12+: topics may be asked for by id (KIP-516). 8+: authorized operations on request (KIP-430).
"""

from collections.abc import Awaitable

from moldau.cluster.image import ClusterImage, PartitionImage, TopicImage
from moldau.cluster.topic_names import validate_topic_name
from moldau.handlers.authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from moldau.handlers.context import RequestContext
from moldau.handlers.topics import auto_create, is_internal
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.protocol.schema import ZERO_UUID

ALL_TOPICS_IS_AN_EMPTY_LIST = 0


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Awaitable[MetadataResponse]:
    missing = _missing(request, context)
    return _create_then_answer(missing, request, context) if missing else _answer(request, context, {})


def _missing(request: MetadataRequest, context: RequestContext) -> list[str]:
    """The topics to create before the answer."""
    if not request.allow_auto_topic_creation or not context.services.config.bool("auto.create.topics.enable"):
        return []
    topics = context.services.metadata.image.topics
    asked = [topic.name for topic in request.topics or () if topic.topic_id == ZERO_UUID and topic.name]
    return [name for name in dict.fromkeys(asked) if name not in topics and _name_error(name) is None]


async def _create_then_answer(
    missing: list[str], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    failed: dict[str, int] = {}
    for name in missing:
        try:
            await auto_create(name, context.services)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was first: just as well
                failed[name] = error.code
    return _answer(request, context, failed)


def _answer(request: MetadataRequest, context: RequestContext, failed: dict[str, int]) -> MetadataResponse:
    image = context.services.metadata.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if _asks_for_all(request, context):
        topics = [_topic(topic, operations) for topic in image.topics.values()]
    else:
        topics = [_asked_topic(asked, image, operations, failed) for asked in request.topics or ()]
    return MetadataResponse(
        brokers=_brokers(image, context.listener),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _asks_for_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == ALL_TOPICS_IS_AN_EMPTY_LIST and not request.topics)


def _brokers(image: ClusterImage, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.listener == listener
    ]


def _asked_topic(
    asked: MetadataRequestTopic, image: ClusterImage, operations: int, failed: dict[str, int]
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID:
        by_id = image.topic_names_by_id.get(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
            )
        return _topic(image.topics[by_id], operations)
    name = asked.name or ""
    topic = image.topics.get(name)
    if topic is not None:
        return _topic(topic, operations)
    code = failed.get(name) or _name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name), partitions=[])


def _topic(topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(index, each) for index, each in enumerate(topic.partitions)],
        topic_authorized_operations=operations,
    )


def _partition(index: int, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader < 0 else ErrorCode.NONE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[],
    )


def _name_error(name: str) -> int | None:
    try:
        validate_topic_name(name)
    except ApiError as error:
        return error.code
    return None
