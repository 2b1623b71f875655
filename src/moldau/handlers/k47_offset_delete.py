"""OffsetDelete, version 0 (KIP-496).

Forgets committed offsets of a group, partition by partition.

- GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP (members that are no consumers) refuse all of it. Of a group of consumers with
  members, topics that they are subscribed to are refused with GROUP_SUBSCRIBED_TO_TOPIC.
- A partition without an offset is deleted successfully; a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
"""

from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.outcome import Decision
from moldau.coordinators.promise import Promise
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from moldau.requests.authorization import DELETE, GROUP, READ, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer, promised
from moldau.requests.pieces import Pieces

PIECES = Pieces("topics", "topics", "partitions", "partitions")


def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse | PendingAnswer:
    if not context.may(DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    denied = {topic.name for topic in request.topics if not context.may(READ, TOPIC, topic.name)}
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    existing = context.services.metadata.image.topics
    known = [each for each in wanted if each.topic in existing and each.topic not in denied]

    def delete(shard: GroupShard) -> Decision[list[int]]:
        return shard.offsets.delete(request.group_id, known)

    def response(codes: list[int] | ApiError) -> OffsetDeleteResponse:
        if isinstance(codes, ApiError):
            return OffsetDeleteResponse(error_code=codes.code)
        return _response(request, dict(zip(known, codes, strict=True)), denied)

    codes = context.services.groups.answer(request.group_id, delete, lambda error: error)
    return promised(codes.mapped(response) if isinstance(codes, Promise) else response(codes))


def _response(request: OffsetDeleteRequest, codes: dict[TopicPartition, int], denied: set[str]) -> OffsetDeleteResponse:
    def other(topic: str) -> int:
        is_denied = topic in denied
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(TopicPartition(topic.name, each.partition_index), other(topic.name)),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
