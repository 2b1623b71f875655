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

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k27_write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from moldau.requests.authorization import ALTER, CLUSTER, CLUSTER_ACTION
from moldau.requests.context import RequestContext
from moldau.requests.markers import LocalMarkers, refused
from moldau.requests.pending import PendingAnswer, promised
from moldau.requests.pieces import Pieces

PIECES = Pieces("markers", "markers", "topics", "topics", elements_max=100)


def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse | PendingAnswer:
    if not (context.may(ALTER, CLUSTER) or context.may(CLUSTER_ACTION, CLUSTER)):
        return refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return promised(LocalMarkers.of(context.services).write(request))
