"""Fetches of a consumer that follows one partition here, from bytes to bytes.

Between two records such a consumer sends the same request over and over, with another offset, or in a session with
nothing at all when the offset is the one before. It is read by its layout (topics by id, no rack, nothing forgotten)
and answered by it, without a message in between.

The law: whatever is not plainly such a request is left to `k01_fetch` before anything is changed; and if something else
than records comes of it while it waits (another leader, an aborted transaction), the answer is made there, too.
"""

from moldau.core.broker_config import BrokerConfig
from moldau.core.files import FileRegion
from moldau.fastpath.repeats import Respond
from moldau.handlers.k01_fetch import answer_now
from moldau.protocol import codec
from moldau.protocol.errors import ApiError
from moldau.protocol.fetch_values import NO_SESSION, READ_COMMITTED, UNKNOWN, WITHOUT_SESSION
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, Frame, parse_request_header
from moldau.protocol.layouts import (
    ANSWER_OF_NONE_BYTES,
    ANSWER_OF_ONE_BYTES,
    COUNT_OF_NONE,
    COUNT_OF_NULL,
    COUNT_OF_ONE,
    END_OF_ANSWER,
    END_OF_ONE,
    NOTHING_NAMED,
    fetch_of_none,
    fetch_of_one,
    int32_at,
    pack_answer_of_none,
    pack_answer_of_one,
)
from moldau.protocol.messages.k01_fetch import FetchRequest
from moldau.protocol.schema import RecordData
from moldau.protocol.source import write_varint
from moldau.replication.replica import Replica
from moldau.requests.authorization import READ, TOPIC
from moldau.requests.context import RequestContext
from moldau.requests.fetch_sessions import FetchSession, TopicKey, Wanted
from moldau.requests.pending import PendingAnswer


class ConsumerRepeats:
    """The fast path of one connection and version."""

    __slots__ = (
        "_allowed",
        "_body_position",
        "_config",
        "_context",
        "_header",
        "_max_bytes",
        "_respond",
        "_sessions",
        "scheduler",
    )

    def __init__(self, context: RequestContext, respond: Respond, frame: Frame) -> None:
        """`frame` has the header that all of them have."""
        self._context = context
        self._respond = respond
        self._body_position = parse_request_header(frame).body_position
        self._header = bytes(frame[REST_POSITION : self._body_position])
        self._sessions = context.services.fetch_sessions
        self._config: BrokerConfig | None = None
        self._max_bytes = 0  # that the broker sends at once, under that configuration
        self._allowed: set[TopicKey] = set()
        """The topics that may be read here, under the version of the policy that this was made under."""
        self.scheduler = context.services.scheduler

    def serve(self, frame: Frame) -> bytes | list[RecordData] | PendingAnswer | None:
        """The answer; None: this is for the handler."""
        body_position = self._body_position
        if frame[REST_POSITION:body_position] != self._header:
            return None
        body_bytes = len(frame) - body_position
        if body_bytes == fetch_of_one.size:
            return self._serve_named(frame)
        return self._serve_unchanged(frame) if body_bytes == fetch_of_none.size else None

    def _serve_named(self, frame: Frame) -> list[RecordData] | PendingAnswer | None:
        """Serve a request that names its partition."""
        (
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, topic_id, partitions,
            index, leader_epoch, offset, last_epoch, _, partition_max_bytes, end,
        ) = fetch_of_one.unpack_from(frame, self._body_position)  # fmt: skip  # the order of the bytes
        if not (topics == partitions == COUNT_OF_ONE and end == END_OF_ONE):
            return None
        partition = self._readable(topic_id, index, leader_epoch, offset, last_epoch)
        if partition is None:
            return None
        session, wanted = None, None
        if session_epoch == WITHOUT_SESSION and session_id == NO_SESSION:
            wanted = Wanted(topic_id, index)
        elif session_epoch > 0:
            session = self._sessions.of_one(session_id, session_epoch)
            wanted = None if session is None else session.wanted.get((topic_id, index))
        if wanted is None:
            return None
        wanted.fetch_offset, wanted.max_bytes = offset, partition_max_bytes
        wanted.current_leader_epoch, wanted.last_fetched_epoch = leader_epoch, last_epoch
        fetch = self._fetch(frame, partition, session, wanted, isolation_level, max_bytes)
        return fetch.start(min_bytes, max_wait_ms)

    def _serve_unchanged(self, frame: Frame) -> list[RecordData] | PendingAnswer | None:
        """One of a session whose partition is wanted as before."""
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, end = fetch_of_none.unpack_from(
            frame, self._body_position
        )
        if end != NOTHING_NAMED or session_epoch <= 0:
            return None
        session = self._sessions.of_one(session_id, session_epoch)
        if session is None:
            return None
        (wanted,) = session.wanted.values()
        partition = self._readable(
            wanted.topic, wanted.index, wanted.current_leader_epoch, wanted.fetch_offset, wanted.last_fetched_epoch
        )
        if partition is None:
            return None
        fetch = self._fetch(frame, partition, session, wanted, isolation_level, max_bytes)
        return fetch.start(min_bytes, max_wait_ms)

    def _readable(self, topic: TopicKey, index: int, leader_epoch: int, offset: int, last_epoch: int) -> Replica | None:
        """The copy that is here, if nothing but records can come of reading it."""
        partition = self.find(topic, index)
        if (
            partition is None
            or (topic not in self._allowed and not self._is_allowed(topic, partition))
            or not _has_epochs(partition, leader_epoch, last_epoch)
            or partition.log.failure is not None
            or not partition.log.log_start_offset <= offset <= partition.high_watermark
        ):
            return None
        return partition

    def _is_allowed(self, topic: TopicKey, partition: Replica) -> bool:
        """Whether the consumer may read a topic, which is kept if it may."""
        context, name = self._context, partition.topic_partition.topic
        is_allowed = context.may(READ, TOPIC, name)
        if is_allowed:
            self._allowed.add(topic)
            context.services.topic_clients.read(name, context.client_id, context.client_host)
        return is_allowed

    def _fetch(
        self,
        frame: Frame,
        partition: Replica,
        session: FetchSession | None,
        wanted: Wanted,
        isolation_level: int,
        max_bytes: int,
    ) -> "ConsumerFetch":
        """Begin to serve: from here on the session goes on."""
        services = self._context.services
        if session is not None:
            self._sessions.go_on(session, services.clock.monotonic_ms())
        config = services.config
        if config is not self._config:
            self._config, self._max_bytes = config, config.int("fetch.max.bytes")
        limit = max_bytes if max_bytes < self._max_bytes else self._max_bytes
        return ConsumerFetch(self, frame, partition, session, wanted, isolation_level == READ_COMMITTED, limit)

    def find(self, topic: TopicKey, index: int) -> Replica | None:
        """The copy that is here."""
        replicas = self._context.services.replicas
        name = replicas.name_of(topic) if isinstance(topic, bytes) else None
        return None if name is None else replicas.replica(name, index)

    def whole(self, frame: Frame, session: FetchSession | None, wanted: Wanted, topic: str) -> list[RecordData]:
        """The answer as the handler makes it for one who may read the topic."""
        request = codec.decode(FetchRequest, self._context.api_version, frame, self._body_position)
        (correlation_id,) = int32_at(frame, CORRELATION_ID_POSITION)
        return self._respond(correlation_id, answer_now(request, self._context, session, wanted, topic))


def _has_epochs(partition: Replica, leader_epoch: int, last_epoch: int) -> bool:
    """Whether a partition has the leader epoch that a consumer knows, and the one that it has read up to."""
    return leader_epoch in (UNKNOWN, partition.leader_epoch) and last_epoch in (
        UNKNOWN,
        partition.log.leader_epochs.latest,
    )


class ConsumerFetch(PendingAnswer):
    """One request on its way to its answer. It keeps its frame, which is too short to be lent."""

    __slots__ = (
        "_frame",
        "_is_committed",
        "_is_soon",
        "_limit",
        "_needed_bytes",
        "_partition",
        "_repeats",
        "_session",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        repeats: ConsumerRepeats,
        frame: Frame,
        partition: Replica,
        session: FetchSession | None,
        wanted: Wanted,
        is_committed: bool,
        limit: int,
    ) -> None:
        super().__init__()
        self._repeats = repeats
        self._frame = frame
        self._partition = partition
        self._session = session
        self._wanted = wanted
        self._is_committed = is_committed
        self._limit = limit
        self._is_soon = False

    def start(self, min_bytes: int, max_wait_ms: int) -> list[RecordData] | PendingAnswer:
        """The answer, or wait for it."""
        size = 0
        if self._wanted.fetch_offset < self._partition.high_watermark or max_wait_ms <= 0 or min_bytes <= 0:
            try:
                region = self._read()
            except ApiError:
                return self._whole()
            size = 0 if region is None else len(region)
            if size >= min_bytes or max_wait_ms <= 0:
                return self._tell(region)
        self._needed_bytes = min_bytes - size
        self._timer = self._repeats.scheduler.call_later(max_wait_ms / 1000, self._ready)
        self._partition.wait(self, committed=self._is_committed)
        return self

    def advanced(self, appended_bytes: int) -> None:
        """Answers at the end of the loop's turn, so that several appends of one wake-up go into one answer."""
        self._needed_bytes -= appended_bytes
        if self._needed_bytes <= 0 and not self._is_soon:
            self._is_soon = True
            self._repeats.scheduler.call_soon(self._ready)

    def cancel(self) -> None:
        super().cancel()
        self._forget()

    def _forget(self) -> None:
        self._timer.cancel()
        self._partition.stop_waiting(self)

    def _ready(self) -> None:
        if self._then is None or self.chunks is not None:
            return
        self._forget()
        self.complete_with(self._answer_now)

    def _answer_now(self) -> list[RecordData]:
        partition, wanted = self._partition, self._wanted
        is_same = self._repeats.find(wanted.topic, wanted.index) is partition
        if not is_same or not _has_epochs(partition, wanted.current_leader_epoch, wanted.last_fetched_epoch):
            return self._whole()
        try:
            return self._tell(self._read())
        except ApiError:
            return self._whole()

    def _whole(self) -> list[RecordData]:
        topic = self._partition.topic_partition.topic
        return self._repeats.whole(self._frame, self._session, self._wanted, topic)

    def _read(self) -> FileRegion | None:
        wanted = self._wanted  # which another request of the session may have changed, as it may for the handler
        limit = min(self._limit, wanted.max_bytes)
        return self._partition.read(wanted.fetch_offset, limit, committed=self._is_committed, min_one_batch=True)

    def _tell(self, region: FileRegion | None) -> list[RecordData]:
        """The answer with these records."""
        partition, wanted, session = self._partition, self._wanted, self._session
        high_watermark, log_start = partition.high_watermark, partition.log.log_start_offset
        last_stable_offset = partition.last_stable_offset
        (correlation_id,) = int32_at(self._frame, CORRELATION_ID_POSITION)
        session_id = NO_SESSION
        if session is not None:
            session_id = session.id
            news = (high_watermark, log_start)
            if region is None and (wanted.sent_high_watermark, wanted.sent_log_start) == news:
                return [
                    pack_answer_of_none(ANSWER_OF_NONE_BYTES, correlation_id, 0, 0, 0, session_id, COUNT_OF_NONE, 0)
                ]
            wanted.sent_high_watermark, wanted.sent_log_start = news
        aborted = COUNT_OF_NULL
        if self._is_committed:
            aborted = COUNT_OF_NONE
            if region is not None and partition.log.aborted_transactions(wanted.fetch_offset, last_stable_offset):
                return self._whole()
        size = 0 if region is None else len(region)
        length = write_varint(size + 1)
        head = pack_answer_of_one(
            ANSWER_OF_ONE_BYTES + len(length) + size + len(END_OF_ANSWER), correlation_id, 0, 0, 0, session_id,
            COUNT_OF_ONE, wanted.topic, COUNT_OF_ONE,
            wanted.index, 0, high_watermark, last_stable_offset, log_start, aborted, UNKNOWN,
        )  # fmt: skip  # the order of the bytes
        if region is None:
            return [head + length + END_OF_ANSWER]
        return [head + length, region, END_OF_ANSWER]
