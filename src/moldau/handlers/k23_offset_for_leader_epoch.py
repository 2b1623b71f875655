"""OffsetForLeaderEpoch, versions 0 to 4.

Where an epoch's records end in the leader's log: a follower or a consumer that fetched in an older epoch finds out from
it where its own copy parts from the leader's (KIP-101, KIP-279, KIP-320).
"""

from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from moldau.requests.authorization import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

PIECES = Pieces("topics", "topics", "partitions", "partitions")


def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_partition(topic.topic, asked, context) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    try:
        if not context.may(CLUSTER_ACTION, CLUSTER):
            context.require(DESCRIBE, TOPIC, topic)
        partition = context.services.replicas.get(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        epoch, end_offset = partition.log.epoch_end_offset(asked.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
