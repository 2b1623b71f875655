"""OffsetDelete, version 0 (KIP-496).

Forgets committed offsets of a group, partition by partition.

- GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP (members that are no consumers) refuse all of it. Of a group of consumers with
  members, topics that they are subscribed to are refused with GROUP_SUBSCRIBED_TO_TOPIC.
- A partition without an offset is deleted successfully; a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
"""

from moldau.core.ids import TopicPartition
from moldau.handlers.context import RequestContext
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    wanted = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    existing = context.services.metadata.image.topics
    known = [each for each in wanted if each.topic in existing]
    try:
        codes = await context.services.groups.write(
            request.group_id, lambda shard: shard.offsets.delete(request.group_id, known)
        )
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    results = dict(zip(known, codes, strict=True))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=results.get(
                            TopicPartition(topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
