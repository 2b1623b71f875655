"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer follows, requests carry only changes.

A session is known by id and epoch; each request must carry the epoch after the last one, so a lost or repeated
request is noticed. Ids are random: after a restart no stale id may hit a session of somebody else.

Sessions are bounded in number, as in Kafka, and in the partitions of all of them together. Whoever finds no place gets
no session: it names all its partitions with each request, and is answered as well.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from moldau.core.scheduler import Scheduler
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import (
    EPOCH_MAX,
    FETCH_BY_TOPIC_ID,
    FIRST_EPOCH,
    NO_SESSION,
    next_session_epoch,
)
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest
from moldau.requests.replica_sessions import ReplicaSessions
from moldau.requests.turns import Turns

EVICTION_MS = 120_000
"""Kafka's min.incremental.fetch.session.eviction.ms: a session idle for longer may give its place to a new one."""

PARTITIONS_MAX = 500_000
"""Partitions of all sessions together: 190 bytes each. Kafka bounds the sessions only, each of any size."""

TopicKey = str | bytes


class Wanted:
    """One partition as a consumer wants it, and what it was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int) -> None:
        self.topic = topic
        self.index = index
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.sent_high_watermark = -1
        self.sent_log_start = -1


class FetchSession:
    """Partitions that one consumer fetches, in the order in which they are served."""

    __slots__ = ("epoch", "id", "last_used_ms", "uses_topic_ids", "wanted")

    def __init__(self, session_id: int, uses_topic_ids: bool, wanted: dict[tuple[TopicKey, int], Wanted]) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.wanted = wanted
        self.last_used_ms = 0

    def update(self, request: FetchRequest) -> int:
        """Add, change and forget partitions; by how many it has grown."""
        before = len(self.wanted)
        for key, partition in _requested(request, self.uses_topic_ids):
            _set(self.wanted, key, partition)
        for topic in request.forgotten_topics_data:
            name: TopicKey = topic.topic_id if self.uses_topic_ids else topic.topic
            for index in topic.partitions:
                self.wanted.pop((name, index), None)
        return len(self.wanted) - before

    def served(self, wanted: Wanted) -> None:
        """A partition that gave data goes to the end, so that the others get their turn under the byte limit."""
        key = (wanted.topic, wanted.index)
        if self.wanted.pop(key, None) is not None:
            self.wanted[key] = wanted


class Plan(NamedTuple):
    """Session and partitions of one fetch request."""

    session: FetchSession | None
    wanted: list[Wanted]
    incremental: bool


class FetchSessions:
    """All sessions of a broker. Those of consumers are bounded; those of followers are a world of their own."""

    def __init__(self, slots: int, random: Random, scheduler: Scheduler, partitions_max: int = PARTITIONS_MAX) -> None:
        self.partitions = 0
        """Number of partitions in all sessions of consumers."""
        self._partitions_max = partitions_max
        self.of_replicas = ReplicaSessions(random, scheduler)
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, api_version: int, now_ms: int) -> Plan:
        """Find or make the session; raises ApiError for the session errors of KIP-227."""
        uses_topic_ids = api_version >= FETCH_BY_TOPIC_ID
        if request.session_epoch > FIRST_EPOCH:
            return self._continue(request, uses_topic_ids, now_ms)
        wanted: dict[tuple[TopicKey, int], Wanted] = {}
        for key, partition in _requested(request, uses_topic_ids):
            _set(wanted, key, partition)
        return self._begin(request, uses_topic_ids, wanted, now_ms)

    async def plan_in_turns(self, request: FetchRequest, api_version: int, now_ms: int, turns: Turns) -> Plan:
        """The same for a request with very many partitions. One that changes a session as much has to begin anew."""
        uses_topic_ids = api_version >= FETCH_BY_TOPIC_ID
        if request.session_epoch > FIRST_EPOCH:
            self._drop(request.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "so many partitions are a session of their own")
        wanted: dict[tuple[TopicKey, int], Wanted] = {}
        async for key, partition in turns.each(_requested(request, uses_topic_ids)):
            _set(wanted, key, partition)
        return self._begin(request, uses_topic_ids, wanted, now_ms)

    def _begin(
        self, request: FetchRequest, uses_topic_ids: bool, wanted: dict[tuple[TopicKey, int], Wanted], now_ms: int
    ) -> Plan:
        if request.session_id != NO_SESSION:
            self._drop(request.session_id)
        session = None
        if request.session_epoch == FIRST_EPOCH and wanted:
            session = self._open(uses_topic_ids, wanted, now_ms)
        return Plan(session, list(wanted.values()), incremental=False)

    def _continue(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> Plan:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session is by topic name or by id, not both")
        if session.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        self.go_on(session, now_ms)
        self.partitions += session.update(request)
        if not self._has_room(0, now_ms):
            self._drop(session.id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the fetch sessions have too many partitions")
        return Plan(session, list(session.wanted.values()), incremental=True)

    def of_one(self, session_id: int, epoch: int) -> FetchSession | None:
        """The session that a request of this epoch continues, if it has one partition, by topic id."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or not session.uses_topic_ids or len(session.wanted) != 1:
            return None
        return session

    def go_on(self, session: FetchSession, now_ms: int) -> None:
        """A request of its epoch has come."""
        session.epoch = next_session_epoch(session.epoch)
        self._used(session, now_ms)

    def _open(
        self, uses_topic_ids: bool, wanted: dict[tuple[TopicKey, int], Wanted], now_ms: int
    ) -> FetchSession | None:
        if len(wanted) > self._partitions_max or not self._has_room(len(wanted), now_ms):
            return None
        if len(self._sessions) >= self._slots and not self._evict(now_ms):
            return None
        session_id = self._random.randrange(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, EPOCH_MAX)
        session = FetchSession(session_id, uses_topic_ids, wanted)
        self.partitions += len(wanted)
        self._used(session, now_ms)
        return session

    def _has_room(self, added: int, now_ms: int) -> bool:
        """Whether so many more partitions fit in, if need be in place of sessions that are idle for long."""
        while self.partitions + added > self._partitions_max:
            if not self._evict(now_ms):
                return False
        return True

    def _drop(self, session_id: int) -> None:
        dropped = self._sessions.pop(session_id, None)
        if dropped is not None:
            self.partitions -= len(dropped.wanted)

    def _used(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session

    def _evict(self, now_ms: int) -> bool:
        """Drop the session unused for longest, if that is long."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_MS:
            return False
        self._drop(oldest.id)
        return True


def _requested(request: FetchRequest, uses_topic_ids: bool) -> Iterator[tuple[tuple[TopicKey, int], FetchPartition]]:
    for topic in request.topics:
        name: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            yield (name, partition.partition), partition


def _set(all_wanted: dict[tuple[TopicKey, int], Wanted], key: tuple[TopicKey, int], asked: FetchPartition) -> None:
    wanted = all_wanted.get(key)
    if wanted is None:
        wanted = all_wanted[key] = Wanted(*key)
    wanted.fetch_offset = asked.fetch_offset
    wanted.max_bytes = asked.partition_max_bytes
    wanted.current_leader_epoch = asked.current_leader_epoch
    wanted.last_fetched_epoch = asked.last_fetched_epoch
