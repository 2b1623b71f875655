"""ListPartitionReassignments, version 0 (KIP-455).

The partitions that are being moved, of the topics that are named or of all: their replicas now, those that are being
added, those that will be removed. What is not being moved, or does not exist, is not in the answer.
"""

from collections.abc import Iterable, Iterator

from moldau.cluster.image import TopicImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from moldau.requests.authorization import CLUSTER, DESCRIBE
from moldau.requests.context import RequestContext
from moldau.requests.pieces import Pieces

PIECES = Pieces("topics", "topics", "partition_indexes", "partitions", elements_max=500)


def handle(request: ListPartitionReassignmentsRequest, context: RequestContext) -> ListPartitionReassignmentsResponse:
    if not context.may(DESCRIBE, CLUSTER):
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    topics = context.services.metadata.image.topics
    asked: Iterable[tuple[TopicImage, Iterable[int]]]
    if request.topics is None:
        asked = ((topic, range(len(topic.partitions))) for topic in topics.values())
    else:
        asked = ((topics[each.name], each.partition_indexes) for each in request.topics if each.name in topics)
    moving = ((topic.name, list(_moving(topic, indexes))) for topic, indexes in asked)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=found) for name, found in moving if found],
    )


def _moving(topic: TopicImage, indexes: Iterable[int]) -> Iterator[OngoingPartitionReassignment]:
    for index in indexes:
        state = topic.partitions[index] if 0 <= index < len(topic.partitions) else None
        if state is not None and (state.adding or state.removing):
            yield OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
