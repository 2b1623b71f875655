"""Followers' fetches, from bytes to bytes.

A cluster that writes is a cluster that fetches: two requests of followers for each batch. All of them look the same, so
they are read here by their layout (version 17, a session that goes on, nothing forgotten) and answered by it, without a
message in between. What is read and told is up to `replica_fetch`; whatever looks different is left to it, too.
"""

from struct import Struct

from moldau.core.files import FileRegion
from moldau.protocol.fetch_values import UNKNOWN
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, SIZE_BYTES, Frame
from moldau.protocol.schema import RecordData
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from moldau.requests.replica_fetch import Limits, Position, ReplicaFetch, Sender, Told
from moldau.requests.replica_sessions import ReplicaSession

VERSION = 17

_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from
_start = Struct(">iiibii")  # wait, min and max bytes, isolation level, session id and epoch
_position = Struct(">iiqiqi")
_tail = Struct(">BBBBBiqB")  # nothing forgotten, no rack, one tagged field: number 1, of 13 bytes, is the replica state
_tail_begins = (1, 1, 1, 1, 13)
_head = Struct(">iiBihi")  # size, correlation id, no tags, throttle time, error code, session id
_partition = Struct(">ihqqqBi")  # ..., last stable offset, log start offset, aborted transactions, preferred replica
_diverging = Struct(">BBBiqB").pack
NO_TAGS = b"\0"
UUID_BYTES = 16
POSITION_BYTES = _position.size + len(NO_TAGS)


class ReplicaRepeats:
    """Those of one connection."""

    __slots__ = ("_context", "_header", "_sessions")

    def __init__(self, context: RequestContext, frame: Frame) -> None:
        """`frame` has the header that all of them have."""
        self._context = context
        self._sessions = context.services.fetch_sessions.of_replicas
        (client_id_bytes,) = _int16(frame, REST_POSITION)
        body_position = REST_POSITION + 2 + max(client_id_bytes, 0) + len(NO_TAGS)
        self._header = bytes(frame[REST_POSITION:body_position])

    def serve(self, frame: Frame) -> list[RecordData] | PendingAnswer | None:
        """The answer; None: this is for the handler."""
        header = self._header
        body_position = REST_POSITION + len(header)
        if frame[REST_POSITION:body_position] != header:
            return None
        tail_position = len(frame) - _tail.size
        position = body_position + _start.size
        if tail_position <= position:
            return None
        *tail_begins, replica_id, broker_epoch, _ = _tail.unpack_from(frame, tail_position)
        max_wait_ms, min_bytes, max_bytes, _, session_id, epoch = _start.unpack_from(frame, body_position)
        session = self._sessions.of(replica_id)
        if (
            tuple(tail_begins) != _tail_begins
            or session is None
            or (session.id, session.epoch, session.broker_epoch) != (session_id, epoch, broker_epoch)
        ):
            return None
        asked = _positions(frame, position, tail_position)
        if asked is None:
            return None
        (correlation_id,) = _int32(frame, CORRELATION_ID_POSITION)
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
            return _chunks(fetch.told, session.id, correlation_id)
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
        self.complete(_chunks(self._fetch.told, self._session.id, self._correlation_id))
        return True

    def cancel(self) -> None:
        super().cancel()
        self._session.stop_waiting(self)


def _positions(frame: Frame, position: int, end: int) -> list[tuple[bytes, Position]] | None:
    """The topics of a request; None if they are not laid out as they should."""
    asked: list[tuple[bytes, Position]] = []
    topics = frame[position] - 1
    position += 1
    if not 0 <= topics < 0x7F:
        return None
    for _ in range(topics):
        partitions_at = position + UUID_BYTES
        if partitions_at >= end:
            return None
        topic_id = bytes(frame[position:partitions_at])
        partitions = frame[partitions_at] - 1
        position = partitions_at + 1
        if not 0 < partitions < 0x7F or position + partitions * POSITION_BYTES >= end:
            return None
        for _ in range(partitions):
            if frame[position + POSITION_BYTES - 1]:
                return None
            asked.append((topic_id, _position.unpack_from(frame, position)))
            position += POSITION_BYTES
        if frame[position]:
            return None
        position += 1
    return asked if position == end else None


def _chunks(told: list[Told], session_id: int, correlation_id: int) -> list[RecordData]:
    """A whole response, size and header included."""
    topics: dict[str | bytes, list[Told]] = {}
    for each in told:
        topics.setdefault(each[0][0], []).append(each)
    chunks: list[RecordData] = []
    now = bytearray(_head.pack(0, correlation_id, 0, 0, 0, session_id))
    now += _length(len(topics))
    for topic_id, partitions in topics.items():
        now += topic_id  # type: ignore[arg-type]  # sessions of this version are by id
        now += _length(len(partitions))
        for (_, index), error_code, high_watermark, log_start, diverging, records in partitions:
            now += _partition.pack(index, error_code, high_watermark, UNKNOWN, log_start, 0, UNKNOWN)
            now += _length(0 if records is None else len(records))
            if records is not None:
                now = _add_records(chunks, now, records)
            if diverging.epoch < 0:
                now += NO_TAGS
            else:
                now += _diverging(1, 0, 13, diverging.epoch, diverging.end_offset, 0)
        now += NO_TAGS
    now += NO_TAGS
    chunks.append(bytes(now))
    size = sum([len(chunk) for chunk in chunks]) - SIZE_BYTES
    chunks[0] = size.to_bytes(SIZE_BYTES, "big") + chunks[0][SIZE_BYTES:]  # type: ignore[index]  # is bytes
    return chunks


def _add_records(chunks: list[RecordData], before: bytearray, records: FileRegion) -> bytearray:
    chunks.append(bytes(before))
    chunks.append(records)
    return bytearray()


def _length(count: int) -> bytes:
    """A compact length: one more than it is, seven bits at a time."""
    count += 1
    if count < 0x80:
        return bytes((count,))
    written = bytearray()
    while count >= 0x80:
        written.append(count & 0x7F | 0x80)
        count >>= 7
    written.append(count)
    return bytes(written)
