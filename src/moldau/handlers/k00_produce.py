"""Produce, versions 0 to 13.

Batches are appended as they were sent, in the order of the request. Each partition gets its own result: one bad batch
does not hurt the others.

- acks=0: no answer; an error closes the connection, which is the only way to tell. acks=1: answered after the
  append. acks=-1: answered when the durability policy says so.
- Internal topics (`__consumer_offsets` ...) are refused with INVALID_TOPIC_EXCEPTION.
- Versions 0-1 carry message sets v0, 2 carries v1: stored as batches v2. From 3 on exactly one batch v2 a partition.
- 5+: the log start offset is told. 8+: an error message comes with the code (KIP-467). 13+: topics by id (KIP-516).

Gaps: transactional writes are refused with INVALID_TXN_STATE until there is a transaction coordinator.
"""

from collections.abc import Awaitable

from moldau.handlers.context import RequestContext
from moldau.handlers.produce_repeats import NO_ACKS, PRODUCE_BY_TOPIC_ID, VERSION_MIN, ProduceRepeats, Respond
from moldau.handlers.topics import INTERNAL_TOPICS
from moldau.log.log import Log
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.records.validate import InvalidRecordsError
from moldau.replication.durability import ACKS_ALL
from moldau.replication.partition import Partition

ACKS = (ACKS_ALL, NO_ACKS, 1)

WRITTEN_BY_BROKERS = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by brokers only")
"""What coordinators keep in memory is only what they themselves have written."""


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    refused = _reason_to_refuse(request)
    if refused is not None:
        return _refuse_all(refused, request)
    services, acks = context.services, request.acks
    written: list[Partition] = []
    response = ProduceResponse(responses=[_append_topic(topic, acks, context, written) for topic in request.topic_data])
    if acks == NO_ACKS:
        _fail_loudly(response)
        return None
    syncing = services.durability.when_durable([each.log for each in written], acks)
    return response if syncing is None else _after_sync(syncing, written, response)


def repeats(context: RequestContext, respond: Respond) -> ProduceRepeats | None:
    """What serves the requests of one connection that are like those before."""
    return ProduceRepeats(context, respond) if context.api_version >= VERSION_MIN else None


def _append_topic(
    topic: TopicProduceData, acks: int, context: RequestContext, written: list[Partition]
) -> TopicProduceResponse:
    """Append to the partitions of one topic; those that took it are added to `written`."""
    services, version = context.services, context.api_version
    replicas, now_ms = services.replicas, services.clock.now_ms()
    name = topic.name if version < PRODUCE_BY_TOPIC_ID else replicas.name_of(topic.topic_id)
    if name in INTERNAL_TOPICS:
        return _refuse_topic(WRITTEN_BY_BROKERS, topic)
    results = []
    for data in topic.partition_data:
        try:
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            partition = replicas.get(name, data.index)
            appended = partition.append(data.records or b"", version, acks, now_ms)
        except ApiError as error:
            results.append(_refusal(data.index, error))
            continue
        written.append(partition)
        results.append(
            PartitionProduceResponse(
                index=data.index,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time,
                log_start_offset=partition.log.log_start_offset,
            )
        )
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)


def _refuse_all(refused: ApiError, request: ProduceRequest) -> ProduceResponse:
    response = ProduceResponse(responses=[_refuse_topic(refused, topic) for topic in request.topic_data])
    if request.acks == NO_ACKS:
        _fail_loudly(response)
    return response


def _refuse_topic(refused: ApiError, topic: TopicProduceData) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[_refusal(data.index, refused) for data in topic.partition_data],
    )


def _fail_loudly(response: ProduceResponse) -> None:
    """Nobody waits for the answer: an error can only be told by closing the connection."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise ProtocolError(f"a write with acks=0 failed: {result.error_message}")


def _refusal(index: int, error: ApiError) -> PartitionProduceResponse:
    blamed = error.record_errors if isinstance(error, InvalidRecordsError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=each.batch_index, batch_index_error_message=each.message)
            for each in blamed
        ],
        error_message=error.message,
    )


def _reason_to_refuse(request: ProduceRequest) -> ApiError | None:
    if request.acks not in ACKS:
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1, not {request.acks}")
    if request.transactional_id is not None:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "transactions are not served yet")
    return None


async def _after_sync(
    syncing: Awaitable[frozenset[Log]], written: list[Partition], response: ProduceResponse
) -> ProduceResponse:
    """The answer once the disk has it; partitions whose sync failed get KAFKA_STORAGE_ERROR."""
    failed = await syncing
    if not failed:
        return response
    lost: set[tuple[str | bytes, int]] = set()
    for partition in written:
        if partition.log in failed:
            topic, index = partition.topic_partition
            lost.update([(topic, index), (partition.topic_id, index)])
    return ProduceResponse(responses=[_without(lost, topic) for topic in response.responses])


def _without(lost: set[tuple[str | bytes, int]], topic: TopicProduceResponse) -> TopicProduceResponse:
    def result(each: PartitionProduceResponse) -> PartitionProduceResponse:
        if (topic.name, each.index) in lost or (topic.topic_id, each.index) in lost:
            return PartitionProduceResponse(index=each.index, error_code=ErrorCode.KAFKA_STORAGE_ERROR, base_offset=-1)
        return each

    return TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=list(map(result, topic.partition_responses))
    )
