"""Metadata, versions 0 to 13.

Who leads which partition, at the addresses of the listener that the client came through.

- Version 0 asks for all topics with an empty list, later ones with null; an empty list then means none.
- A topic that does not exist is created if `auto.create.topics.enable` and the request (4+) allow it. The answer waits
  for that, so the first try already finds the topic. `__consumer_offsets` is made as its coordinator needs it; the
  other internal topics are not made, they have no coordinator yet.
- A leader that is not alive, or has no address on this listener, is told as -1 with LEADER_NOT_AVAILABLE, the latter
  from 6 on with LISTENER_NOT_FOUND. `offline_replicas`: on brokers that are gone or whose log directory failed.
- A broker that died is listed for three seconds more: clients hand its partitions over better (`departed.py`).
- 10+: topic ids are told, 12+: topics may be asked for by id (KIP-516); 10 and 11 refuse ids with INVALID_REQUEST.
  8+: authorized operations on request (KIP-430).
"""

from collections.abc import Awaitable, Iterable

from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.topic_names import validate_topic_name
from moldau.handlers.authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from moldau.handlers.context import RequestContext
from moldau.handlers.topics import auto_create, is_internal, may_auto_create
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
LISTENER_NOT_FOUND_IS_KNOWN = 6
TOPICS_HAVE_IDS = 10  # KIP-516
TOPICS_BY_ID = 12


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | Awaitable[MetadataResponse]:
    if TOPICS_HAVE_IDS <= context.api_version < TOPICS_BY_ID and any(map(_asks_by_id, request.topics or ())):
        return _refuse_ids(request)
    missing = _missing(request, context)
    return _create_then_answer(missing, request, context) if missing else _answer(request, context, {})


def _asks_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


def _refuse_ids(request: MetadataRequest) -> MetadataResponse:
    """Versions 10 and 11 have room for ids in what they ask, and none for a null name in the answer."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or ()
        ]
    )


def _missing(request: MetadataRequest, context: RequestContext) -> list[str]:
    """The topics to create before the answer."""
    if not request.allow_auto_topic_creation or not context.services.config.bool("auto.create.topics.enable"):
        return []
    topics = context.services.metadata.image.topics
    asked = [topic.name for topic in request.topics or () if topic.topic_id == ZERO_UUID and topic.name]
    return [
        name
        for name in dict.fromkeys(asked)
        if name not in topics and may_auto_create(name) and _name_error(name) is None
    ]


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
    view = _View(image, context.listener, context.api_version, operations)
    if _asks_for_all(request, context):
        topics = [view.topic(topic) for topic in image.topics.values()]
    else:
        topics = [_asked_topic(asked, view, failed) for asked in request.topics or ()]
    return MetadataResponse(
        brokers=_brokers([*image.brokers.values(), *context.services.departed.listed(image)], context.listener),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _asks_for_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == ALL_TOPICS_IS_AN_EMPTY_LIST and not request.topics)


def _brokers(brokers: Iterable[BrokerInfo], listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in brokers
        for endpoint in broker.endpoints
        if endpoint.listener == listener
    ]


def _asked_topic(asked: MetadataRequestTopic, view: "_View", failed: dict[str, int]) -> MetadataResponseTopic:
    image = view.image
    if asked.topic_id != ZERO_UUID:
        by_id = image.topic_names_by_id.get(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
            )
        return view.topic(image.topics[by_id])
    name = asked.name or ""
    topic = image.topics.get(name)
    if topic is not None:
        return view.topic(topic)
    code = failed.get(name) or _name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name), partitions=[])


class _View:
    """The image as one client sees it."""

    def __init__(self, image: ClusterImage, listener: str, api_version: int, operations: int) -> None:
        self.image = image
        self._operations = operations
        self._reachable = {broker.id for broker in image.brokers.values() if broker.endpoint(listener) is not None}
        self._unreachable = (
            ErrorCode.LISTENER_NOT_FOUND
            if api_version >= LISTENER_NOT_FOUND_IS_KNOWN
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def topic(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(topic.name, index, each) for index, each in enumerate(topic.partitions)],
            topic_authorized_operations=self._operations,
        )

    def _partition(self, topic: str, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        error = self._error(topic, index, partition.leader)
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=NO_LEADER if error else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=self.image.offline_replicas(topic, index),
        )

    def _error(self, topic: str, index: int, leader: int) -> ErrorCode:
        if not self.image.is_usable(leader, topic, index):
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.NONE if leader in self._reachable else self._unreachable


def _name_error(name: str) -> int | None:
    try:
        validate_topic_name(name)
    except ApiError as error:
        return error.code
    return None
