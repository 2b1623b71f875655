"""WriteTxnMarkers, versions 0 to 2.

A transaction coordinator ends transactions in the partitions that this broker leads: a control batch for each, which
releases its records, or has them left out, for readers of committed records. The answer comes when the markers are as
safe as a write with acks=all. Each partition has its own code.

- Needs ALTER or CLUSTER_ACTION on the cluster: also tools that abort a transaction which hangs send it (KIP-664).
- TRANSACTION_COORDINATOR_FENCED: a newer coordinator has written here. INVALID_PRODUCER_EPOCH: the producer is ahead.
- Partitions of `__consumer_offsets` go to the group coordinator: NOT_LEADER_OR_FOLLOWER if it is loading or elsewhere.
- 2+: the version of the transaction. From version 2 on the marker's epoch must be above that of the records that it
  ends (KIP-1228); the same marker again, with nothing left to end, is no error (KAFKA-19999).
"""

from moldau.coordinators.promise import Promise
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.requests.authorization import ALTER, CLUSTER, CLUSTER_ACTION
from moldau.requests.context import RequestContext
from moldau.requests.groups_access import awaited
from moldau.requests.markers import LocalMarkers, refused
from moldau.requests.pending import PendingAnswer, promised, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.turns import Turns

PIECES = Pieces("markers", "markers", "topics", "topics", elements_max=100)

PARTITIONS_AT_ONCE_MAX = 200
"""Partitions written to in one turn of the loop: some 10 ms. A request of a coordinator has no more."""


def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse | PendingAnswer:
    count = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    if count > PARTITIONS_AT_ONCE_MAX:
        return undecided(_write_in_turns(request, context))
    return promised(_write(request, context))


def _write(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
    if not (context.may(ALTER, CLUSTER) or context.may(CLUSTER_ACTION, CLUSTER)):
        return refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return LocalMarkers.of(context.services).write(request)


async def _write_in_turns(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Write some partitions at a time, in the order of the request."""
    turns, results = Turns(), []
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        results.append(result)
        for topic in marker.topics:
            answered = WritableTxnMarkerTopicResult(name=topic.name, partitions=[])
            result.topics.append(answered)
            for start in range(0, len(topic.partition_indexes), PARTITIONS_AT_ONCE_MAX // 2):
                indexes = topic.partition_indexes[start : start + PARTITIONS_AT_ONCE_MAX // 2]
                part = _part(marker, WritableTxnMarkerTopic(name=topic.name, partition_indexes=indexes))
                answer: WriteTxnMarkersResponse = await awaited(_write(part, context))
                answered.partitions.extend(answer.markers[0].topics[0].partitions)
                await turns.give_way()
    return WriteTxnMarkersResponse(markers=results)


def _part(marker: WritableTxnMarker, topic: WritableTxnMarkerTopic) -> WriteTxnMarkersRequest:
    """The request for some partitions of one marker."""
    part = WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.transaction_result,
        topics=[topic],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[part])
