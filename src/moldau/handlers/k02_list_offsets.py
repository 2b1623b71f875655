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
- Records are looked at off the event loop and within a budget (`log/timestamps.py`); a leader that changes meanwhile
  is told as NOT_LEADER_OR_FOLLOWER. A partition that is named twice is refused with INVALID_REQUEST (1+), as in Kafka.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from moldau.log.log import Log
from moldau.log.timestamps import MaxTimestampSearch, RecordsLeft, Search, TimestampOffset, TimestampSearch
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import READ_COMMITTED
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.replication.partition import Partition
from moldau.requests.authorization import DESCRIBE, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.opener import Opener
from moldau.requests.pending import PendingAnswer, undecided
from moldau.requests.pieces import Pieces

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

OFFSETS_IN_A_LIST = 0
OFFSETS_TELL_LEADER_EPOCH = 4  # KIP-320
OFFSETS_NOT_AVAILABLE_YET = 5  # KIP-207

SEARCHES_MAX = 3
"""Times that a look-up by time begins anew because the records it found were deleted meanwhile."""

Found = tuple[int, int, int]
"""Offset, timestamp, leader epoch."""

NOTHING: Found = (-1, -1, -1)


PIECES = Pieces("topics", "topics", "partitions", "partitions")


def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse | PendingAnswer:
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    twice = set() if context.api_version == OFFSETS_IN_A_LIST else _asked_twice(asked)
    results: list[ListOffsetsPartitionResponse | _Looking] = []
    for topic, partition in asked:
        if (topic, partition.partition_index) in twice:
            results.append(_refused(partition, ErrorCode.INVALID_REQUEST))
        else:
            results.append(_partition(topic, partition, request, context))
    if any(isinstance(each, _Looking) for each in results):
        return undecided(_look_up(results, request, context))
    return _answer(request, results)


def _asked_twice(asked: list[tuple[str, ListOffsetsPartition]]) -> set[tuple[str, int]]:
    """Partitions that are named twice: they get an error and no other answer, as in Kafka."""
    keys = [(topic, partition.partition_index) for topic, partition in asked]
    return set() if len(set(keys)) == len(keys) else {key for key, count in Counter(keys).items() if count > 1}


def _answer(request: ListOffsetsRequest, results: Iterable[Any]) -> ListOffsetsResponse:
    result = iter(results)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[next(result) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _partition(
    topic: str, asked: ListOffsetsPartition, request: ListOffsetsRequest, context: RequestContext
) -> "ListOffsetsPartitionResponse | _Looking":
    index = asked.partition_index
    try:
        context.require(DESCRIBE, TOPIC, topic)
        partition = context.services.replicas.get(topic, index)
        partition.check_leader_epoch(asked.current_leader_epoch)
        if context.api_version == OFFSETS_IN_A_LIST:
            offsets = _segment_offsets(partition, asked, context.services.clock.now_ms())
            return ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=offsets)
        found = _find(partition, asked.timestamp, _end(partition, request))
        return _Looking(partition, asked) if found is None else _found(partition, asked, found, request, context)
    except ApiError as error:
        return _refused(asked, error.code)


def _refused(asked: ListOffsetsPartition, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


def _found(
    partition: Partition,
    asked: ListOffsetsPartition,
    found: Found,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsPartitionResponse:
    offset, timestamp, epoch = found
    if request.replica_id < 0 and (asked.timestamp == LATEST or offset < 0):
        _check_committed(partition, context.api_version)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch if context.api_version >= OFFSETS_TELL_LEADER_EPOCH else -1,
    )


class _Looking(NamedTuple):
    """A partition whose records have to be looked at."""

    partition: Partition
    asked: ListOffsetsPartition

    def search(self, left: RecordsLeft) -> Search:
        timestamp = self.asked.timestamp
        return MaxTimestampSearch(left) if timestamp == MAX_TIMESTAMP else TimestampSearch(timestamp, left)


async def _look_up(
    results: list[ListOffsetsPartitionResponse | _Looking], request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse:
    """The answer after looking at records, off the loop, with one budget for the whole request."""
    left = RecordsLeft()
    answers = [
        await _looked_up(each, left, request, context) if isinstance(each, _Looking) else each for each in results
    ]
    return _answer(request, answers)


async def _looked_up(
    looking: _Looking, left: RecordsLeft, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsPartitionResponse:
    partition, asked = looking
    epoch = partition.leader_epoch
    try:
        for _ in range(SEARCHES_MAX):
            try:
                found = await _run(looking.search(left), partition.log, context.services.opener)
            finally:  # a file that was cut meanwhile may also have been read as nonsense
                _check_unchanged(partition, epoch, context)
            if found is None or found.offset >= partition.log.log_start_offset:
                told = found if found is not None and found.offset < _end(partition, request) else NOTHING
                return _found(partition, asked, told, request, context)
        raise _not_available(partition, context.api_version)  # records go faster than they are found
    except ApiError as error:
        return _refused(asked, error.code)


def _check_unchanged(partition: Partition, epoch: int, context: RequestContext) -> None:
    if context.services.replicas.get(*partition.topic_partition) is not partition or partition.leader_epoch != epoch:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} has a new leader")


async def _run(search: Search, log: Log, opener: Opener) -> TimestampOffset | None:
    while (region := log.next_region(search)) is not None:
        try:
            found = await opener.run(partial(search.look, region))
        except OSError as error:
            raise log.fail(error) from error
        if found is not None:
            return found
    return None


def _end(partition: Partition, request: ListOffsetsRequest) -> int:
    """Offset up to which the client may read."""
    if request.replica_id >= 0:
        return partition.log.log_end_offset
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _check_committed(partition: Partition, version: int) -> None:
    """KIP-207: what was there when we began to lead may have been told to be committed, and we do not know it yet."""
    if partition.high_watermark < partition.epoch_start_offset:
        raise _not_available(partition, version)


def _not_available(partition: Partition, version: int) -> ApiError:
    is_known = version >= OFFSETS_NOT_AVAILABLE_YET
    code = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
    return ApiError(code, f"{partition.topic_partition} cannot tell yet")


def _find(partition: Partition, timestamp: int, end: int) -> Found | None:
    """None: records have to be looked at."""
    log = partition.log
    if timestamp == LATEST:
        return end, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.leader_epochs.epoch_at(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp < EARLIEST_PENDING_UPLOAD:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{timestamp} is no timestamp and no known target")
    return None


def _segment_offsets(partition: Partition, asked: ListOffsetsPartition, now_ms: int) -> list[int]:
    log, end = partition.log, partition.high_watermark
    if asked.timestamp == EARLIEST:
        return [log.log_start_offset][: asked.max_num_offsets]
    written = [(max(each.base_offset, log.log_start_offset), each.modified_ms()) for each in log.segments]
    is_latest = asked.timestamp == LATEST
    offsets = {min(offset, end) for offset, at in [*written, (end, now_ms)] if is_latest or at <= asked.timestamp}
    return sorted(offsets, reverse=True)[: asked.max_num_offsets]
