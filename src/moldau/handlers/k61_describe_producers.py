"""DescribeProducers, version 0 (KIP-664).

The producers that a partition remembers: idempotent ones with their last sequence, transactional ones also with where
their open transaction starts. To find producers that hang.
"""

from moldau.cluster.topic_names import validate_topic_name
from moldau.log.producers import ProducerEntry
from moldau.protocol.errors import ApiError
from moldau.protocol.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from moldau.requests.authorization import READ, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

PIECES = Pieces("topics", "topics", "partition_indexes", "partitions", elements_max=100)


def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_partition(topic.name, index, context) for index in dict.fromkeys(topic.partition_indexes)],
            )
            for topic in request.topics
        ]
    )


def _partition(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    try:
        context.require(READ, TOPIC, topic)
        validate_topic_name(topic)
        producers = context.services.replicas.get(topic, index).log.producers
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(partition_index=index, active_producers=[_state(entry) for entry in producers])


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
