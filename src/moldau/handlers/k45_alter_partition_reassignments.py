"""AlterPartitionReassignments, versions 0 to 1 (KIP-455).

Moves partitions to other replicas, or with `replicas` null calls a move off. An answer means that the move has begun:
its end shows in ListPartitionReassignments. Any broker serves it.

- A move that is asked for while another goes on replaces it. Where the partition is already, nothing happens.
- No replicas, one of them twice, or a new one that is not alive: INVALID_REPLICA_ASSIGNMENT; also what would leave no
  replica in sync. Nothing to call off: NO_REASSIGNMENT_IN_PROGRESS.
- 1+: `allow_replication_factor_change` false refuses another number of replicas with INVALID_REPLICATION_FACTOR
  (KIP-860).
"""

from moldau.cluster.changes import leaders_are_alive, planned
from moldau.cluster.image import ClusterImage, PartitionImage
from moldau.cluster.metadata import ATTEMPTS_MAX, Conflict, Metadata
from moldau.cluster.reassignment import begin, cancel
from moldau.cluster.store import SessionLost, StoreUnavailable
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from moldau.requests.authorization import ALTER, CLUSTER
from moldau.requests.context import RequestContext
from moldau.requests.pending import holds_order
from moldau.requests.pieces import Pieces

Refusals = dict[int, ApiError]


PIECES = Pieces("topics", "responses", "partitions", "partitions", elements_max=200)


@holds_order
async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    metadata = context.services.metadata
    may_resize = request.allow_replication_factor_change
    if not context.may(ALTER, CLUSTER):
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
    refused = [await reassign(metadata, topic, may_resize) for topic in request.topics]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        error_message=None,
        responses=[_answer(topic, refusals) for topic, refusals in zip(request.topics, refused, strict=True)],
    )


async def reassign(metadata: Metadata, topic: ReassignableTopic, may_resize: bool) -> Refusals:
    """Begin the moves of a topic's partitions in one step; those that were refused, by index."""
    for _attempt in range(ATTEMPTS_MAX):
        image = metadata.image
        states, refusals = _plan(image, topic, may_resize)
        changes = planned(image.topics[topic.name], states) if states else []
        if not changes:
            return refusals
        try:
            await metadata.write(changes, leaders_are_alive(image, changes))
        except Conflict:
            continue
        except (SessionLost, StoreUnavailable):
            break
        return refusals
    error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "the partitions were being changed by others, or the store is away")
    return {each.partition_index: error for each in topic.partitions}


def _plan(
    image: ClusterImage, topic: ReassignableTopic, may_resize: bool
) -> tuple[dict[int, PartitionImage], Refusals]:
    states: dict[int, PartitionImage] = {}
    refusals: Refusals = {}
    for asked in topic.partitions:
        try:
            states[asked.partition_index] = _state(image, topic.name, asked, may_resize)
        except ApiError as error:
            refusals[asked.partition_index] = error.with_traceback(None)  # it would hold all of this in a cycle
    return states, refusals


def _state(image: ClusterImage, topic: str, asked: ReassignablePartition, may_resize: bool) -> PartitionImage:
    index = asked.partition_index
    if asked.replicas is None:
        return cancel(image, topic, index)
    if len(asked.replicas) > len(image.brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{len(asked.replicas)} replicas on {len(image.brokers)} brokers"
        )
    new = begin(image, topic, index, asked.replicas)
    size = sum(broker not in new.adding for broker in new.replicas)
    if not may_resize and len(asked.replicas) != size:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"{topic}-{index} has {size} replicas, not {len(asked.replicas)}"
        )
    return new


def _answer(topic: ReassignableTopic, refusals: Refusals) -> ReassignableTopicResponse:
    return ReassignableTopicResponse(
        name=topic.name, partitions=[_result(asked.partition_index, refusals) for asked in topic.partitions]
    )


def _result(index: int, refusals: Refusals) -> ReassignablePartitionResponse:
    error = refusals.get(index)
    if error is None:
        return ReassignablePartitionResponse(partition_index=index, error_message=None)
    return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
