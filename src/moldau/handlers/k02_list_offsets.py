"""ListOffsets, versions 0 to 11.

Earliest, latest, the first record at or after a timestamp, and the record with the largest timestamp (7+, KIP-734).
`latest` is the high watermark, or the last stable offset for `read_committed`. The targets of tiered storage (8+) are
answered as by a broker whose log is all local: the local start is the log start, nothing is tiered.

- 0: a list of offsets, newest first, as the oldest clients want it: the end, which is of now, and the start of each
  segment. A timestamp is compared with when the segment's file was written, not with the records'.
- 4+: leader epochs are checked and told (KIP-320).
- A leader that is new and does not know yet how much is committed answers OFFSET_NOT_AVAILABLE (5+) or
  LEADER_NOT_AVAILABLE rather than an offset below one that was told before (KIP-207).
- A follower (`replica_id` >= 0) gets the log's end as `latest`.
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
OFFSETS_NOT_AVAILABLE_YET = 5  # KIP-207

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
            offsets = _segment_offsets(partition, asked, context.services.clock.now_ms())
            return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)
        offset, timestamp, epoch = _find(partition, asked.timestamp, _end(partition, request))
        if request.replica_id < 0 and (asked.timestamp == LATEST or offset < 0):
            _check_committed(partition, context.api_version)
    except ApiError as error:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch if context.api_version >= OFFSETS_TELL_LEADER_EPOCH else -1,
    )


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """Up to where the one who asks may read."""
    if request.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _check_committed(partition: Partition, version: int) -> None:
    """KIP-207: what was there when we began to lead may have been told to be committed, and we do not know it yet."""
    if partition.high_watermark < partition.epoch_start_offset:
        is_known = version >= OFFSETS_NOT_AVAILABLE_YET
        code = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        raise ApiError(code, f"{partition.topic_partition} has a new leader")


def _find(partition: Partition, timestamp: int, end: int) -> Found:
    log = partition.log
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


def _segment_offsets(partition: Partition, asked: ListOffsetsPartition, now_ms: int) -> list[int]:
    log, end = partition.log, partition.high_watermark
    if asked.timestamp == EARLIEST:
        return [log.log_start_offset][: asked.max_num_offsets]
    written = [(max(each.base_offset, log.log_start_offset), each.modified_ms()) for each in log.segments]
    is_latest = asked.timestamp == LATEST
    offsets = {min(offset, end) for offset, at in [*written, (end, now_ms)] if is_latest or at <= asked.timestamp}
    return sorted(offsets, reverse=True)[: asked.max_num_offsets]
