"""Fetches like the ones before: of a follower or of a consumer, as the first one of a connection shows."""

from moldau.fastpath.consumer_fetch import ConsumerRepeats
from moldau.fastpath.repeats import Respond
from moldau.fastpath.replica_fetch import ReplicaRepeats
from moldau.protocol.framing import Frame
from moldau.protocol.layouts import CONSUMER_FETCH_VERSIONS, FOLLOWER_FETCH_VERSIONS
from moldau.protocol.messages.k01_fetch import FetchRequest
from moldau.protocol.schema import RecordData
from moldau.requests.authorization import CLUSTER, CLUSTER_ACTION
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer


class FetchRepeats:
    """The fast path of one connection and version."""

    __slots__ = ("_context", "_path", "_respond")

    def __init__(self, context: RequestContext, respond: Respond) -> None:
        self._context = context
        self._respond = respond
        self._path: ReplicaRepeats | ConsumerRepeats | None = None

    def serve(self, frame: Frame) -> bytes | list[RecordData] | PendingAnswer | None:
        """The answer; None: this is for the handler."""
        return None if self._path is None else self._path.serve(frame)

    def may_repeat(self, request: FetchRequest) -> bool:
        is_follower = request.replica_state.replica_id >= 0
        versions = FOLLOWER_FETCH_VERSIONS if is_follower else CONSUMER_FETCH_VERSIONS
        return self._path is None and self._context.api_version in versions

    def learn(self, frame: Frame, request: FetchRequest, _: object) -> None:
        """Remember the header, and whose it is."""
        if request.replica_state.replica_id < 0:
            self._path = ConsumerRepeats(self._context, self._respond, frame)
        elif self._context.may(CLUSTER_ACTION, CLUSTER):
            self._path = ReplicaRepeats(self._context, frame)
