"""DeleteRecords, versions 0 to 2 (KIP-107).

Moves the start of a partition's log up to an offset, -1 being the high watermark; answers with where the log starts
now. An offset below the start changes nothing and is no error; one above the high watermark, or negative, is
OFFSET_OUT_OF_RANGE. Topics that are only compacted are refused with POLICY_VIOLATION: a compacted topic's oldest
records are as good as its newest.

Gaps: followers learn of the new start with their next fetch; the answer does not wait for them.
"""

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from moldau.requests.authorization import DELETE, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

NO_LOW_WATERMARK = -1


PIECES = Pieces("topics", "topics", "partitions", "partitions")


def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(topic.name, asked, context) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, asked: DeleteRecordsPartition, context: RequestContext) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        context.require(DELETE, TOPIC, topic)
        partition = context.services.replicas.get(topic, index)
        config = partition.log.config
        if config.is_compacted and not config.is_deleted_by_retention:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted: its records cannot be deleted")
        low_watermark = partition.delete_records(asked.offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
