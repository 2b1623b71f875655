"""Answers to a producer about one partition: the offset of its batch, the error, and the leader (KIP-951)."""

from moldau.log.log import AppendResult
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.records.validate import InvalidRecordsError
from moldau.requests.context import RequestContext
from moldau.requests.current_leaders import WRONG_LEADER, leader_endpoint, leader_of

PRODUCE_TELLS_LEADERS = 10  # KIP-951
PRODUCE_BY_TOPIC_ID = 13  # KIP-516


def accepted(index: int, appended: AppendResult, log_start_offset: int) -> PartitionProduceResponse:
    """The batch is in the log, which began there at that time."""
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=log_start_offset,
    )


def refusal(index: int, error: ApiError) -> PartitionProduceResponse:
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


def with_leaders(response: ProduceResponse, context: RequestContext) -> ProduceResponse:
    """The same with leaders where a partition is led elsewhere."""
    if context.api_version < PRODUCE_TELLS_LEADERS:
        return response
    leaders: set[int] = set()
    for topic in response.responses:
        results = topic.partition_responses
        for position, each in enumerate(results):
            if each.error_code and each.error_code in WRONG_LEADER:
                results[position], leader_id = _with_leader(each, topic, context)
                leaders.add(leader_id)
    if not leaders:
        return response
    found = filter(None, (leader_endpoint(context, each) for each in sorted(leaders)))
    endpoints = [NodeEndpoint(node_id=id_, host=host, port=port, rack=rack) for id_, host, port, rack in found]
    return ProduceResponse(responses=response.responses, node_endpoints=endpoints)


def _with_leader(
    refused: PartitionProduceResponse, topic: TopicProduceResponse, context: RequestContext
) -> tuple[PartitionProduceResponse, int]:
    key = topic.name if context.api_version < PRODUCE_BY_TOPIC_ID else topic.topic_id
    leader_id, leader_epoch = leader_of(context, key, refused.index)
    result = PartitionProduceResponse(
        index=refused.index,
        error_code=refused.error_code,
        base_offset=-1,
        error_message=refused.error_message,
        current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
    )
    return result, leader_id
