"""Fetch as followers send it (`replica_id` >= 0).

To ask for an offset is to say that all before it is there: that moves the high watermark and lets a follower into the
in-sync replicas. An answer has what the request names, if there is more of it, and what has grown since. It is read up
to the log's end.

- Only that start of a broker is believed which is registered (15+: KIP-903 has the request say it). Others are told
  NOT_LEADER_OR_FOLLOWER for each partition, get no session and leave nothing behind: whoever asks may be no broker at
  all, or one that is quicker than the news of it, which asks again in a moment.
- Sessions are apart from those of consumers (`replica_sessions`) and are not walked over.
- How far the log is committed, and where it starts, comes with every partition in an answer. What has only such news is
  added when the wait has ended without data, or when its last time was longer ago than a wait.
- `leader.replication.throttled.*` (KIP-73): a throttled replica that is not in sync is left out while the rate is
  exceeded.
- 12+: a diverging epoch is told.

`fastpath/replica_fetch.py` serves nearly all of these requests, with what is here, from bytes to bytes.
"""

from asyncio import Future
from typing import NamedTuple

from moldau.cluster.image import NO_TOPIC_ID
from moldau.core.config import parse_list
from moldau.core.files import FileRegion
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import FETCH_BY_TOPIC_ID, FIRST_EPOCH
from moldau.protocol.follower_fetch import AskedPosition, Told
from moldau.protocol.messages.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.replication.partition import Partition
from moldau.replication.throttle import is_throttled
from moldau.requests.authorization import CLUSTER, CLUSTER_ACTION
from moldau.requests.context import RequestContext, Services
from moldau.requests.divergence import NO_DIVERGENCE, diverging_epoch
from moldau.requests.pending import PendingAnswer, awaited
from moldau.requests.replica_sessions import Followed, Key, ReplicaSession

LEADER_THROTTLED = "leader.replication.throttled.replicas"


class Sender(NamedTuple):
    """Broker that asks, and the epoch of its start."""

    replica_id: int
    broker_epoch: int


class Limits(NamedTuple):
    """Bounds of an answer: the bytes that it waits for, and the bytes that it may have."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


def handle(request: FetchRequest, context: RequestContext, sender: Sender) -> FetchResponse | PendingAnswer:
    if not context.may(CLUSTER_ACTION, CLUSTER):
        return _refusal(request, context, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not _is_registered(context.services, sender):
        return _refusal(request, context, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        session = _session(request, context, sender)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    limits = Limits(request.max_wait_ms, request.min_bytes, request.max_bytes)
    fetch = ReplicaFetch(context.services, session, sender, limits)
    _take_request(request, fetch, session)
    if fetch.try_answer(request.max_wait_ms <= 0):
        return _message(fetch.told, session)
    waiting = _WaitingForMessage(fetch, session, context.services.scheduler.create_future())
    session.wait(waiting, request.max_wait_ms)
    return awaited(waiting.future)


def _is_registered(services: Services, sender: Sender) -> bool:
    broker = services.metadata.image.brokers.get(sender.replica_id)
    return broker is not None and broker.epoch == sender.broker_epoch


def _refusal(request: FetchRequest, context: RequestContext, code: ErrorCode) -> FetchResponse:
    session = _session_for_once(context)
    names = [(topic.topic_id if session.uses_topic_ids else topic.topic, topic) for topic in request.topics]
    keys = [(name, each.partition) for name, topic in names for each in topic.partitions]
    return _message([Told(key, code, -1, -1, NO_DIVERGENCE, None) for key in keys], session)


def _session(request: FetchRequest, context: RequestContext, sender: Sender) -> ReplicaSession:
    uses_topic_ids = context.api_version >= FETCH_BY_TOPIC_ID
    sessions = context.services.fetch_sessions.of_replicas
    if request.session_epoch > FIRST_EPOCH:
        id_, epoch = request.session_id, request.session_epoch
        return sessions.go_on(sender.replica_id, id_, epoch, uses_topic_ids=uses_topic_ids)
    followers_are_read = context.services.config.optional_string("replica.selector.class") is not None
    if request.session_epoch == FIRST_EPOCH:
        return sessions.begin(*sender, uses_topic_ids=uses_topic_ids, tells_high_watermarks=followers_are_read)
    return _session_for_once(context)


def _session_for_once(context: RequestContext) -> ReplicaSession:
    uses_topic_ids = context.api_version >= FETCH_BY_TOPIC_ID
    return ReplicaSession.without_memory(context.services.scheduler, uses_topic_ids=uses_topic_ids)


def _take_request(request: FetchRequest, fetch: "ReplicaFetch", session: ReplicaSession) -> None:
    for gone in request.forgotten_topics_data:
        for index in gone.partitions:
            followed = session.partitions.get((gone.topic_id if session.uses_topic_ids else gone.topic, index))
            if followed is not None:
                followed.leave()
    for topic in request.topics:
        name = topic.topic_id if session.uses_topic_ids else topic.topic
        for each in topic.partitions:
            position = (
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
            )
            fetch.take((name, each.partition), position)


def _message(told: list[Told], session: ReplicaSession) -> FetchResponse:
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    for (name, index), error_code, high_watermark, log_start_offset, diverging, records in told:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchableTopicResponse(
                topic="" if isinstance(name, bytes) else name,
                topic_id=name if isinstance(name, bytes) else NO_TOPIC_ID,
                partitions=[],
            )
        topic.partitions.append(
            PartitionData(
                partition_index=index,
                error_code=error_code,
                high_watermark=high_watermark,
                log_start_offset=log_start_offset,
                diverging_epoch=diverging,
                aborted_transactions=None,
                records=records if records is not None else b"",
            )
        )
    session.answered()
    return FetchResponse(session_id=session.id, responses=list(topics.values()))


class _WaitingForMessage:
    """An answer that comes as a message."""

    def __init__(self, fetch: "ReplicaFetch", session: ReplicaSession, future: "Future[FetchResponse]") -> None:
        self._fetch = fetch
        self._session = session
        self.future = future
        self.future.add_done_callback(self._done)

    def attempt(self, time_is_up: bool) -> bool:
        if not self._fetch.try_answer(time_is_up):
            return False
        if not self.future.done():
            self.future.set_result(_message(self._fetch.told, self._session))
        return True

    def _done(self, _: object) -> None:
        self._session.stop_waiting(self)
        self._session.answered()


class ReplicaFetch:
    """One request on its way to its answer, which is `told` once `try_answer` says so."""

    __slots__ = ("_is_urgent", "_limits", "_now_ms", "_sender", "_services", "_session", "told")

    def __init__(self, services: Services, session: ReplicaSession, sender: Sender, limits: Limits) -> None:
        self._services = services
        self._session = session
        self._sender = sender
        self._limits = limits
        self._now_ms: int = services.clock.monotonic_ms()
        self._is_urgent = False
        self.told: list[Told] = []

    # What the follower says

    def take(self, key: Key, position: AskedPosition) -> None:
        """Note where the follower is with one partition."""
        _, leader_epoch, offset, last_fetched_epoch, log_start, max_bytes = position
        try:
            followed = self._follow(key)
            partition = followed.partition
            if leader_epoch != partition.leader_epoch:
                partition.check_leader_epoch(leader_epoch)
            log = partition.log
            if last_fetched_epoch != log.leader_epochs.latest or offset > log.log_end_offset:
                diverging = diverging_epoch(log, last_fetched_epoch, offset)
                if diverging is not None:
                    partition.follower(self._sender.replica_id)
                    self._tell_divergence(followed, diverging)
                    return
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise _out_of_range(partition, offset)
            partition.replica_fetched(*self._sender, offset, log_start, self._now_ms)
        except ApiError as error:
            self._tell_error(key, error)
            return
        followed.max_bytes = max_bytes
        followed.is_at(offset)

    def _follow(self, key: Key) -> Followed:
        followed = self._session.partitions.get(key)
        if followed is not None and followed.partition.is_led:
            return followed
        return self._session.follow(key, self._find(key))

    def _find(self, key: Key) -> Partition:
        topic, index = key
        replicas = self._services.replicas
        if isinstance(topic, str):
            return replicas.get(topic, index)
        name = replicas.name_of(topic)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        partition = replicas.get(name, index)
        if partition.topic_id != topic:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} has another id here")
        return partition

    # What it is told

    def try_answer(self, time_is_up: bool) -> bool:
        """Put into the answer what there is, if that is enough."""
        session = self._session
        if not (session.dirty or self._is_urgent or time_is_up or session.news_is_due):
            return False
        reading = self._read() if session.dirty else []
        if not (time_is_up or self._is_urgent or session.news_is_due or self._is_enough(reading)):
            for followed in session.dirty:
                followed.partition.replica_waiters[followed] = None  # its next append counts, too
            return False
        for followed, region in reading:
            self._tell_records(followed, region)
        if session.untold:
            self._tell_news(time_is_up)
        return True

    def _is_enough(self, reading: list[tuple[Followed, FileRegion | None]]) -> bool:
        size = sum([len(region) for _, region in reading if region is not None])
        return size >= max(self._limits.min_bytes, 1)

    def _read(self) -> list[tuple[Followed, FileRegion | None]]:
        """Records of the dirty partitions, within the limits. None: only the high watermark or the log start moved."""
        limit, min_one_batch = self._limits.max_bytes, True
        found: list[tuple[Followed, FileRegion | None]] = []
        for followed in tuple(self._session.dirty):
            if limit <= 0 and not min_one_batch:
                break
            partition = followed.partition
            try:
                if not partition.is_led:
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is led elsewhere by now")
                if self._must_wait(partition):
                    continue
                max_bytes = min(limit, followed.max_bytes)
                region = partition.read_for_replica(followed.fetch_offset, max_bytes, min_one_batch)
            except ApiError as error:
                self._tell_error(followed.key, error)
                continue
            if region is not None:
                limit -= len(region)
                min_one_batch = False
            elif followed.fetch_offset < partition.log.log_end_offset:
                continue  # it does not fit; its turn comes
            found.append((followed, region))
        return found

    def _must_wait(self, partition: Partition) -> bool:
        """KIP-73."""
        throttle = self._services.leader_throttle
        return (
            throttle.is_limited
            and self._sender.replica_id not in partition.in_sync_replicas
            and self._is_throttled(partition)
            and throttle.is_exceeded()
        )

    def _is_throttled(self, partition: Partition) -> bool:
        topic, index = partition.topic_partition
        known = self._services.metadata.image.topics.get(topic)
        named = known.configs.get(LEADER_THROTTLED) if known is not None else None
        return bool(named) and is_throttled(parse_list(named or ""), index, self._sender.replica_id)

    def _tell_records(self, followed: Followed, region: FileRegion | None) -> None:
        if region is None:
            followed.watch()
            if not followed.is_news:
                return
        else:
            followed.told()
            if self._services.leader_throttle.is_limited and self._is_throttled(followed.partition):
                self._services.leader_throttle.record(len(region))
        self._tell(followed, region)

    def _tell_news(self, time_is_up: bool) -> None:
        session, now_ms = self._session, self._services.clock.monotonic_ms()
        if not (time_is_up or session.news_is_due or now_ms - session.news_told_ms >= self._limits.max_wait_ms):
            return
        session.news_is_due = False
        session.news_told_ms = now_ms
        in_answer = {each.key for each in self.told}
        for followed in tuple(session.untold):
            if followed.is_news and followed.key not in in_answer:
                self._tell(followed, None)

    def _tell_divergence(self, followed: Followed, diverging: EpochEndOffset) -> None:
        """The follower must cut its log first; then it says where it is."""
        self._is_urgent = True
        followed.told()
        self._tell(followed, None, diverging)

    def _tell(self, followed: Followed, records: FileRegion | None, diverging: EpochEndOffset = NO_DIVERGENCE) -> None:
        followed.note_sent()
        sent = followed.sent_high_watermark, followed.sent_log_start
        self.told.append(Told(followed.key, ErrorCode.NONE, *sent, diverging, records))

    def _tell_error(self, key: Key, error: ApiError) -> None:
        self._is_urgent = True
        followed = self._session.partitions.get(key)
        if followed is not None:
            followed.leave()
        self.told.append(Told(key, error.code, -1, -1, NO_DIVERGENCE, None))


def _out_of_range(partition: Partition, offset: int) -> ApiError:
    start, end = partition.log.log_start_offset, partition.log.log_end_offset
    return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.topic_partition} has {start} to {end}, not {offset}")
