"""Followers' fetches, from bytes to bytes.

A cluster that writes is a cluster that fetches: two requests of followers for each batch. All of them look the same, so
they are read here by their layout (a session that goes on, nothing forgotten) and answered by it, without a message in
between. What is read and told is up to `requests/replica_fetch.py`; whatever looks different is left to it, too.
"""

from moldau.protocol.follower_fetch import answer_chunks, read_positions
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, Frame, parse_request_header
from moldau.protocol.layouts import FOLLOWER_END_BEGINS, fetch_start, follower_end, int32_at
from moldau.protocol.schema import RecordData
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from moldau.requests.replica_fetch import Limits, ReplicaFetch, Sender
from moldau.requests.replica_sessions import ReplicaSession


class ReplicaRepeats:
    """The fast path of one connection."""

    __slots__ = ("_context", "_header", "_sessions")

    def __init__(self, context: RequestContext, frame: Frame) -> None:
        """`frame` has the header that all of them have."""
        self._context = context
        self._sessions = context.services.fetch_sessions.of_replicas
        self._header = bytes(frame[REST_POSITION : parse_request_header(frame).body_position])

    def serve(self, frame: Frame) -> list[RecordData] | PendingAnswer | None:
        """The answer; None: this is for the handler."""
        header = self._header
        body_position = REST_POSITION + len(header)
        if frame[REST_POSITION:body_position] != header:
            return None
        end_position = len(frame) - follower_end.size
        position = body_position + fetch_start.size
        if end_position <= position:
            return None
        *begins, replica_id, broker_epoch, tags = follower_end.unpack_from(frame, end_position)
        max_wait_ms, min_bytes, max_bytes, _, session_id, epoch = fetch_start.unpack_from(frame, body_position)
        session = self._sessions.of(replica_id)
        if (
            tuple(begins) != FOLLOWER_END_BEGINS
            or tags
            or session is None
            or (session.id, session.epoch, session.broker_epoch) != (session_id, epoch, broker_epoch)
        ):
            return None
        asked = read_positions(frame, position, end_position)
        if asked is None:
            return None
        (correlation_id,) = int32_at(frame, CORRELATION_ID_POSITION)
        session.next_epoch()
        fetch = ReplicaFetch(
            self._context.services,
            session,
            Sender(replica_id, broker_epoch),
            Limits(max_wait_ms, min_bytes, max_bytes),
        )
        for topic_id, where in asked:
            fetch.take((topic_id, where[0]), where)
        if fetch.try_answer(max_wait_ms <= 0):
            return answer_chunks(fetch.told, session.id, correlation_id)
        waiting = WaitingForChunks(fetch, session, correlation_id)
        session.wait(waiting, max_wait_ms)
        return waiting


class WaitingForChunks(PendingAnswer):
    """An answer that comes as chunks."""

    __slots__ = ("_correlation_id", "_fetch", "_session")

    def __init__(self, fetch: ReplicaFetch, session: ReplicaSession, correlation_id: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._session = session
        self._correlation_id = correlation_id

    def attempt(self, time_is_up: bool) -> bool:
        if not self._fetch.try_answer(time_is_up):
            return False
        self.complete(answer_chunks(self._fetch.told, self._session.id, self._correlation_id))
        return True

    def cancel(self) -> None:
        super().cancel()
        self._session.stop_waiting(self)
