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

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import cast

from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage, TopicImage
from moldau.cluster.topic_names import validate_topic_name
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
from moldau.requests.authorization import CLUSTER, CREATE, DESCRIBE, NOT_ASKED, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, undecided
from moldau.requests.topic_lookup import auto_create, is_internal, may_auto_create
from moldau.requests.turns import Turns

ALL_TOPICS_IS_AN_EMPTY_LIST = 0
LISTENER_NOT_FOUND_IS_KNOWN = 6
TOPICS_HAVE_IDS = 10  # KIP-516
TOPICS_BY_ID = 12
PARTITIONS_AT_ONCE_MAX = 1000
"""Partitions that are described without a pause: 2 to 3 ms."""

CREATED_AT_ONCE_MAX = 1000
"""Topics that one request creates; who wants more asks again, as clients do for what they are not told of."""


def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse | PendingAnswer:
    if TOPICS_HAVE_IDS <= context.api_version < TOPICS_BY_ID and any(map(_asks_by_id, request.topics or ())):
        return _refuse_ids(request)
    if len(request.topics or ()) > PARTITIONS_AT_ONCE_MAX:
        return undecided(_answer_in_turns(request, context))
    asked = _asked(request, context)
    if _size(asked) > PARTITIONS_AT_ONCE_MAX or any(True for _ in _missing(request, context)):
        return undecided(_answer_in_turns(request, context))
    view = _View(request, context, {})
    return _answer(request, context, [view.topic(each) for each in asked])


Asked = list[TopicImage | MetadataRequestTopic]
"""A topic, or the name or id of one that does not exist."""


def _asked(request: MetadataRequest, context: RequestContext) -> Asked:
    """Topics that the answer describes. A topic that is named twice is described once, as in Kafka."""
    image = context.services.metadata.image
    distinct = {_key(each): each for each in _asked_for(request, context)}
    return [each if isinstance(each, TopicImage) else _find(each, image) or each for each in distinct.values()]


def _asked_for(request: MetadataRequest, context: RequestContext) -> Iterable[TopicImage | MetadataRequestTopic]:
    if not _asks_for_all(request, context):
        return request.topics or ()
    topics = context.services.metadata.image.topics.values()
    return (each for each in topics if context.may(DESCRIBE, TOPIC, each.name))


def _key(each: TopicImage | MetadataRequestTopic) -> tuple[str | None, bytes]:
    return each.name, each.topic_id


def _find(asked: MetadataRequestTopic, image: ClusterImage) -> TopicImage | None:
    if asked.topic_id != ZERO_UUID:
        return image.topic_by_id(asked.topic_id)
    return image.topics.get(asked.name or "")


def _size(asked: Asked) -> int:
    """Number of topics and partitions that are described."""
    return len(asked) + sum(len(each.partitions) for each in asked if isinstance(each, TopicImage))


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


def _missing(request: MetadataRequest, context: RequestContext) -> Iterator[str]:
    """The topics to create before the answer."""
    if not request.allow_auto_topic_creation or not context.services.config.bool("auto.create.topics.enable"):
        return iter(())
    topics = context.services.metadata.image.topics
    named = (topic.name for topic in request.topics or () if topic.topic_id == ZERO_UUID and topic.name)
    missing = (name for name in named if name not in topics and may_auto_create(name) and _name_error(name) is None)
    return (name for name in missing if context.may(DESCRIBE, TOPIC, name) and _may_create(name, context))


def _may_create(name: str, context: RequestContext) -> bool:
    return context.may(CREATE, CLUSTER) or context.may(CREATE, TOPIC, name)


async def _answer_in_turns(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """The answer after the missing topics are made; others are served in between."""
    failed: dict[str, int] = {}
    for name in islice(_missing(request, context), CREATED_AT_ONCE_MAX):
        try:
            await auto_create(name, context.services)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was first: just as well
                failed[name] = error.code
    view, turns = _View(request, context, failed), Turns()
    topics: list[MetadataResponseTopic] = []
    told: set[object] = set()
    async for one in turns.each(_asked_for(request, context)):
        if (key := _key(one)) in told:
            continue
        told.add(key)
        each = one if isinstance(one, TopicImage) else _find(one, view.image) or one
        topics.append(view.topic(each, PARTITIONS_AT_ONCE_MAX))
        partitions = each.partitions if isinstance(each, TopicImage) else ()
        for start in range(PARTITIONS_AT_ONCE_MAX, len(partitions), PARTITIONS_AT_ONCE_MAX):
            await turns.give_way()
            topics[-1].partitions.extend(view.partitions(cast(TopicImage, each), start, PARTITIONS_AT_ONCE_MAX))
    return _answer(request, context, topics)


def _answer(request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    image = context.services.metadata.image
    return MetadataResponse(
        brokers=_brokers([*image.brokers.values(), *context.services.recent_brokers.listed(image)], context.listener),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            context.cluster_rights() if request.include_cluster_authorized_operations else NOT_ASKED
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


class _View:
    """The image as one client sees it."""

    def __init__(self, request: MetadataRequest, context: RequestContext, failed: dict[str, int]) -> None:
        """`failed`: why topics could not be made."""
        self.image = image = context.services.metadata.image
        self._failed = failed
        self._asked_ids = {topic.topic_id for topic in request.topics or () if topic.topic_id != ZERO_UUID}
        self._context = context
        self._tells_rights = request.include_topic_authorized_operations
        self._is_to_create = request.allow_auto_topic_creation and context.services.config.bool(
            "auto.create.topics.enable"
        )
        self._reachable = {
            broker.id for broker in image.brokers.values() if broker.endpoint(context.listener) is not None
        }
        self._unreachable = (
            ErrorCode.LISTENER_NOT_FOUND
            if context.api_version >= LISTENER_NOT_FOUND_IS_KNOWN
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def topic(
        self, asked: TopicImage | MetadataRequestTopic, partitions_max: int | None = None
    ) -> MetadataResponseTopic:
        if not isinstance(asked, TopicImage):
            return self._missing(asked)
        if not self._context.may(DESCRIBE, TOPIC, asked.name):
            return self._denied(asked)
        return MetadataResponseTopic(
            name=asked.name,
            topic_id=asked.topic_id,
            is_internal=is_internal(asked.name),
            partitions=self.partitions(asked, 0, partitions_max or len(asked.partitions)),
            topic_authorized_operations=(self._context.rights(TOPIC, asked.name) if self._tells_rights else NOT_ASKED),
        )

    def _missing(self, asked: MetadataRequestTopic) -> MetadataResponseTopic:
        if asked.topic_id != ZERO_UUID:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id, partitions=[])
        name = asked.name or ""
        error = (
            self._failed.get(name) or self._denial(name) or _name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name), partitions=[])

    def _denial(self, name: str) -> int | None:
        """The code for one who may not know whether a topic exists, or who may not have it made."""
        is_allowed = self._context.may(DESCRIBE, TOPIC, name)
        if is_allowed and self._is_to_create:
            is_allowed = _may_create(name, self._context)
        return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _denied(self, topic: TopicImage) -> MetadataResponseTopic:
        """The answer about a topic that the client may not describe: by the name or by the id that it knows."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic.topic_id in self._asked_ids:
            return MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id, partitions=[])
        return MetadataResponseTopic(error_code=code, name=topic.name, partitions=[])

    def partitions(self, topic: TopicImage, start: int, count: int) -> list[MetadataResponsePartition]:
        """Some of a topic's, from one on."""
        some = topic.partitions[start : start + count]
        return [self._partition(topic.name, index, each) for index, each in enumerate(some, start)]

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
