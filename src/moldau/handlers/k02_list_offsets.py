"""ListOffsets, versions 0 to 11.

Earliest, latest, the first record at or after a timestamp, and the record with the largest timestamp (7+, KIP-734).
`latest` is the high watermark, or the last stable offset for `read_committed`. The targets of tiered storage (8+) are
answered as by a broker whose log is all local: the local start is the log start, nothing is tiered.

- 0: a list of offsets, one per segment, newest first, as the oldest clients want it.
- 4+: leader epochs are checked and told (KIP-320).
"""

from moldau.handlers.context import RequestContext
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.replication.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

READ_COMMITTED = 1
OFFSETS_IN_A_LIST = 0
OFFSETS_TELL_LEADER_EPOCH = 4  # KIP-320

Found = tuple[int, int, int]
"""Offset, timestamp, leader epoch."""

NOTHING: Found = (-1, -1, -1)


def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_partition(topic.name, asked, request, context) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(
    topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = context.services.replicas.get(topic, index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if context.api_version == OFFSETS_IN_A_LIST:
            offsets = _segment_offsets(partition, asked.timestamp, asked.max_num_offsets)
            return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)
        offset, timestamp, epoch = _find(partition, asked.timestamp, request.isolation_level == READ_COMMITTED)
    except ApiError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch if context.api_version >= OFFSETS_TELL_LEADER_EPOCH else -1,
    )


def _find(partition: Partition, timestamp: int, committed: bool) -> Found:
    log = partition.log
    end = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp == LATEST:
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.leader_epochs.epoch_at(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp < EARLIEST_PENDING_UPLOAD:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{timestamp} is no timestamp and no known target")
    found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    return found if found is not None and found[0] < end else NOTHING


def _segment_offsets(partition: Partition, timestamp: int, count: int) -> list[int]:
    log = partition.log
    if timestamp == EARLIEST:
        return [log.log_start_offset][:count]
    latest = timestamp == LATEST
    offsets = {
        max(each.base_offset, log.log_start_offset) for each in log.segments if latest or each.max_timestamp < timestamp
    }
    return sorted(offsets | ({partition.high_watermark} if latest else set()), reverse=True)[:count]
