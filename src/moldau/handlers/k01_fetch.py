"""Fetch, versions 0 to 18.

Answers at once when `min_bytes` are there, or when a partition has an error to tell; otherwise waits up to
`max_wait_ms`. Record batches are not read: an answer holds regions of segment files.

- `max_bytes` (3+) and each partition's `partition_max_bytes` cut the answer, but the first batch of the first partition
  that has data comes whole even if it is larger (KIP-74). Versions 0 to 2 cut hard, as they did then: in the middle of
  a message.
- Versions 0-1 get message sets v0, 2-3 get v1: converted, which costs. It is done off the event loop and within a
  budget, so that an answer may hold less than was asked for. From 4 on batches go out as they are stored. A batch is
  not more than its messages were: one is read whatever its size, and as many of its messages come as were asked for.
- 7+: incremental sessions (KIP-227). 9+: leader epochs are checked (KIP-320). 12+: a diverging epoch is told.
  13+: topics by id (KIP-516).
- A topic with `compression.type=zstd` is refused below version 10 (KIP-110).
- 11+: a consumer may be sent to a replica in its rack (KIP-392), and may read from any replica. Below, only from the
  leader. 12+: a consumer that came to the wrong broker is told who leads, 16+: and where that is (KIP-951).
- What is above the high watermark is not there yet for a consumer: it waits.
- Followers fetch with the same request; they are served by `requests/replica_fetch.py`.
"""

from collections.abc import Sequence
from functools import partial
from typing import cast

from moldau.cluster.changes import chunks
from moldau.core.files import FileRegion
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.fetch_values import FETCH_BY_TOPIC_ID, NO_SESSION, READ_COMMITTED
from moldau.protocol.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from moldau.records.legacy import DownConversion
from moldau.replication.delayed import DelayedFetch
from moldau.replication.partition import Partition
from moldau.replication.replica import Replica
from moldau.requests import replica_fetch
from moldau.requests.authorization import READ, TOPIC, refused
from moldau.requests.context import RequestContext
from moldau.requests.current_leaders import WRONG_LEADER, leader_endpoint, leader_of
from moldau.requests.divergence import NO_DIVERGENCE, diverging_epoch
from moldau.requests.fetch_sessions import FetchSession, Plan, Wanted
from moldau.requests.pending import PendingAnswer, fetched, undecided
from moldau.requests.replica_selection import THE_LEADER, preferred_read_replica
from moldau.requests.turns import Turns

FETCH_CUTS_SOFTLY = 3  # KIP-74
FETCH_BATCHES_V2 = 4  # KIP-98
FETCH_ZSTD = 10  # KIP-110
FETCH_FROM_FOLLOWERS = 11  # KIP-392
FETCH_TELLS_LEADERS = 12  # KIP-595
FETCH_BY_REPLICA_STATE = 15  # KIP-903
FETCH_TELLS_ADDRESSES = 16  # KIP-951
MESSAGE_SET_V1 = 2  # KIP-32

PARTITIONS_AT_ONCE_MAX = 500
"""Looked into without a pause: some 5 ms."""

PARTITIONS_IN_A_TURN = 100
PARTITIONS_PLANNED_AT_ONCE_MAX = 10_000
"""Noted as wanted without a pause: some 10 ms."""


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | PendingAnswer:
    services = context.services
    count = sum(len(topic.partitions) for topic in request.topics)
    sender = _follower(request, context.api_version)
    if count > PARTITIONS_PLANNED_AT_ONCE_MAX and sender.replica_id < 0:
        return undecided(_planned_in_turns(request, context))
    if sender.replica_id >= 0:
        return replica_fetch.handle(request, context, sender)
    try:
        plan = services.fetch_sessions.plan(request, context.api_version, services.clock.monotonic_ms())
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = _Fetch(request, context, plan)
    if len(plan.wanted) > PARTITIONS_AT_ONCE_MAX:
        return undecided(_in_turns(fetch, request.max_wait_ms, context.api_version))
    fetch.read()
    if context.api_version < FETCH_BATCHES_V2:
        return undecided(_converted(fetch, request.max_wait_ms))
    if fetch.is_enough or request.max_wait_ms <= 0:
        return fetch.answer()
    return fetched(fetch.delayed(request.max_wait_ms))


async def _converted(fetch: "_Fetch", max_wait_ms: int) -> FetchResponse:
    """The answer in an old format. It holds the order, so it is the only one of its connection that takes memory."""
    if not fetch.is_enough and max_wait_ms > 0:
        await fetch.grown(max_wait_ms)
        fetch.read_again()
    await fetch.convert()
    return fetch.answer()


async def _planned_in_turns(request: FetchRequest, context: RequestContext) -> FetchResponse:
    services, version = context.services, context.api_version
    try:
        plan = await services.fetch_sessions.plan_in_turns(request, version, services.clock.monotonic_ms(), Turns())
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    return await _in_turns(_Fetch(request, context, plan), request.max_wait_ms, version)


async def _in_turns(fetch: "_Fetch", max_wait_ms: int, version: int) -> FetchResponse:
    """The answer about very many partitions; others are served in between."""
    turns = Turns()
    await fetch.read_in_turns(turns)
    if not fetch.is_enough and max_wait_ms > 0:
        await fetch.grown(max_wait_ms)
        await fetch.read_in_turns(turns)
    if version < FETCH_BATCHES_V2:
        await fetch.convert()
    return await fetch.answer_in_turns(turns)


def answer_now(
    request: FetchRequest, context: RequestContext, session: FetchSession | None, wanted: Wanted, topic: str
) -> FetchResponse:
    """The answer to a request for one partition whose time has come. The client was allowed to read this topic when it
    asked."""
    fetch = _Fetch(request, context, Plan(session, [wanted], incremental=session is not None))
    fetch.allow(topic)
    fetch.read()
    return fetch.answer()


def _follower(request: FetchRequest, version: int) -> replica_fetch.Sender:
    """Sender of the request, if it is a broker."""
    if version < FETCH_BY_REPLICA_STATE:
        return replica_fetch.Sender(request.replica_id, broker_epoch=-1)
    return replica_fetch.Sender(request.replica_state.replica_id, request.replica_state.replica_epoch)


class _Fetch:
    """One request on its way to its answer."""

    __slots__ = (
        "_allowed",
        "_context",
        "_limit",
        "_min_one_batch",
        "_plan",
        "_request",
        "_results",
        "bytes_read",
        "failed",
        "moved_to",
        "partitions",
    )

    def __init__(self, request: FetchRequest, context: RequestContext, plan: Plan) -> None:
        self._request = request
        self._context = context
        self._plan = plan
        self._allowed: dict[str, bool] = {}
        self._results: list[tuple[Wanted, PartitionData]] = []
        self.partitions: list[Replica] = []
        self.bytes_read = 0
        self.failed = False
        self.moved_to: set[int] = set()

    @property
    def is_enough(self) -> bool:
        return self.failed or self.bytes_read >= self._request.min_bytes or not self.partitions

    def read(self) -> None:
        """Look into every wanted partition, within the limits."""
        self._begin()
        self._read_some(self._plan.wanted)

    async def read_in_turns(self, turns: Turns) -> None:
        """The same of very many."""
        self._begin()
        for some in chunks(self._plan.wanted, PARTITIONS_IN_A_TURN):
            self._read_some(some)
            await turns.give_way()

    def _begin(self) -> None:
        self._results.clear()
        self.partitions.clear()
        self.bytes_read = 0
        self._limit = min(self._request.max_bytes, self._context.services.config.int("fetch.max.bytes"))
        self._min_one_batch = True

    def _read_some(self, some: Sequence[Wanted]) -> None:
        limit, min_one_batch = self._limit, self._min_one_batch
        cuts_softly = self._context.api_version >= FETCH_CUTS_SOFTLY
        for wanted in some:
            result = self._read_partition(wanted, limit, min_one_batch)
            self._results.append((wanted, result))
            size = len(result.records) if result.records else 0
            if size:
                self.bytes_read += size
                limit = max(0, limit - size)
                min_one_batch = not cuts_softly
        self._limit, self._min_one_batch = limit, min_one_batch

    def read_again(self) -> FetchResponse:
        """The answer after waiting."""
        self.read()
        return self.answer()

    def delayed(self, max_wait_ms: int) -> DelayedFetch[FetchResponse]:
        """Ready when there is more, or when the time is up."""
        return DelayedFetch(
            self._context.services.scheduler,
            self.partitions,
            needed_bytes=self._request.min_bytes - self.bytes_read,
            max_wait_ms=max_wait_ms,
            answer=self.read_again,
            committed=self._request.isolation_level == READ_COMMITTED,
        )

    async def grown(self, max_wait_ms: int) -> None:
        """Return when there is more, or when the time is up."""
        delayed = self.delayed(max_wait_ms)
        grown = self._context.services.scheduler.create_future()
        delayed.then(lambda: None if grown.done() else grown.set_result(None))
        try:
            await grown
        finally:
            delayed.cancel()

    async def convert(self) -> None:
        """Turn what was read into message sets. Where the budget is used up differs from answer to answer: so every
        partition comes to its turn."""
        services = self._context.services
        version = self._context.api_version
        conversion = DownConversion(magic=1 if version >= MESSAGE_SET_V1 else 0)
        filled = [number for number, (_, result) in enumerate(self._results) if result.records]
        first = services.random.randrange(len(filled)) if filled else 0
        for number in filled[first:] + filled[:first]:
            wanted, result = self._results[number]
            region = cast(FileRegion, result.records)
            convert = partial(conversion.convert, region, wanted.fetch_offset, max(0, wanted.max_bytes))
            try:
                records = await services.opener.run(partial(convert, first_whole=version >= FETCH_CUTS_SOFTLY))
            except OSError as error:
                told = self._refused(wanted, self._find(wanted).log.fail(error))
            except ApiError as error:
                told = self._refused(wanted, error)
            else:
                told = PartitionData(
                    partition_index=wanted.index, high_watermark=result.high_watermark, records=records
                )
            self._results[number] = wanted, told

    def _read_partition(self, wanted: Wanted, limit: int, min_one_batch: bool) -> PartitionData:
        try:
            partition = self._find(wanted)
            partition.check_leader_epoch(wanted.current_leader_epoch)
            if isinstance(partition, Partition) and self._request.rack_id:
                closest = self._closest_replica(partition, wanted)
                if closest != THE_LEADER:
                    return self._sent_elsewhere(partition, wanted, closest)
            self.partitions.append(partition)
            return self._read_log(partition, wanted, min(limit, wanted.max_bytes), min_one_batch)
        except ApiError as error:
            self.failed = True
            return self._refused(wanted, error)

    def _refused(self, wanted: Wanted, error: ApiError) -> PartitionData:
        return PartitionData(
            partition_index=wanted.index,
            error_code=error.code,
            high_watermark=-1,
            current_leader=self._current_leader(wanted, error),
            records=b"",
        )

    def _closest_replica(self, partition: Partition, wanted: Wanted) -> int:
        services = self._context.services
        selector = services.config.optional_string("replica.selector.class")
        return preferred_read_replica(
            partition, wanted.fetch_offset, self._request.rack_id, services.metadata.image, selector
        )

    def _sent_elsewhere(self, partition: Partition, wanted: Wanted, replica_id: int) -> PartitionData:
        """KIP-392: read from that one."""
        self.failed = True  # nothing to wait for
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            preferred_read_replica=replica_id,
            records=b"",
        )

    def _current_leader(self, wanted: Wanted, error: ApiError) -> LeaderIdAndEpoch:
        """KIP-951: whom to ask instead."""
        if error.code not in WRONG_LEADER or self._context.api_version < FETCH_TELLS_LEADERS:
            return LeaderIdAndEpoch()
        leader_id, leader_epoch = leader_of(self._context, wanted.topic, wanted.index)
        self.moved_to.add(leader_id)
        return LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)

    def _find(self, wanted: Wanted) -> Replica:
        replicas = self._context.services.replicas
        find = replicas.readable if self._context.api_version >= FETCH_FROM_FOLLOWERS else replicas.get
        topic = wanted.topic
        if isinstance(topic, bytes):
            name = replicas.name_of(topic)
            if name is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            topic = name
        if not self._may_read(topic):
            raise refused(TOPIC)
        return find(topic, wanted.index)

    def allow(self, topic: str) -> None:
        """Take it that the client may read a topic: it was asked for before."""
        self._allowed[topic] = True

    def _may_read(self, topic: str) -> bool:
        """Whether the consumer may read a topic: asked once, also if it waits."""
        is_allowed = self._allowed.get(topic)
        if is_allowed is None:
            context = self._context
            is_allowed = self._allowed[topic] = context.may(READ, TOPIC, topic)
            if is_allowed:
                context.services.topic_clients.read(topic, context.client_id, context.client_host)
        return is_allowed

    def _read_log(self, partition: Replica, wanted: Wanted, max_bytes: int, min_one_batch: bool) -> PartitionData:
        diverging = diverging_epoch(partition.log, wanted.last_fetched_epoch, wanted.fetch_offset)
        committed = self._request.isolation_level == READ_COMMITTED
        records: FileRegion | bytes | None = b""
        if diverging is None:
            region = partition.read(wanted.fetch_offset, max_bytes, committed=committed, min_one_batch=min_one_batch)
            if region is not None:
                records = region
                self._check_format(partition)
        else:
            self.failed = True  # nothing to wait for: the client must truncate first
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=diverging or NO_DIVERGENCE,
            aborted_transactions=_aborted(partition, wanted, records) if committed else None,
            records=records,
        )

    def _check_format(self, partition: Replica) -> None:
        if self._context.api_version < FETCH_ZSTD and partition.log.config.compression_type == "zstd":
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Fetch v{FETCH_ZSTD} or later")

    def answer(self) -> FetchResponse:
        topics: list[FetchableTopicResponse] = []
        self._tell(self._results, topics, None)
        return self._response(topics)

    async def answer_in_turns(self, turns: Turns) -> FetchResponse:
        topics: list[FetchableTopicResponse] = []
        last: object = None
        for some in chunks(self._results, PARTITIONS_IN_A_TURN):
            last = self._tell(some, topics, last)
            await turns.give_way()
        return self._response(topics)

    def _tell(
        self, results: Sequence[tuple[Wanted, PartitionData]], topics: list[FetchableTopicResponse], last: object
    ) -> object:
        """Put what there is to tell into `topics`, the last of which is `last`; returns which is the last then."""
        session = self._plan.session
        for wanted, result in results:
            if session is not None and not self._is_news(wanted, result):
                continue
            if wanted.topic != last:
                last = wanted.topic
                topics.append(self._topic(wanted))
            topics[-1].partitions.append(result)
        return last

    def _response(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        session = self._plan.session
        return FetchResponse(
            session_id=session.id if session else NO_SESSION, responses=topics, node_endpoints=self._node_endpoints()
        )

    def _node_endpoints(self) -> list[NodeEndpoint]:
        if self._context.api_version < FETCH_TELLS_ADDRESSES:
            return []
        found = filter(None, (leader_endpoint(self._context, each) for each in sorted(self.moved_to)))
        return [NodeEndpoint(node_id=id_, host=host, port=port, rack=rack) for id_, host, port, rack in found]

    def _is_news(self, wanted: Wanted, result: PartitionData) -> bool:
        """Whether an incremental answer must mention this partition; remembers what is told."""
        news = (
            bool(result.records)
            or result.error_code != 0
            or wanted.sent_high_watermark != result.high_watermark
            or wanted.sent_log_start != result.log_start_offset
            or result.diverging_epoch.epoch >= 0
            or result.preferred_read_replica != THE_LEADER
            or not self._plan.incremental
        )
        failed = result.error_code != 0  # then the next good answer is news
        wanted.sent_high_watermark = -1 if failed else result.high_watermark
        wanted.sent_log_start = result.log_start_offset
        if result.records and self._plan.session is not None:
            self._plan.session.served(wanted)
        return news

    def _topic(self, wanted: Wanted) -> FetchableTopicResponse:
        if self._context.api_version >= FETCH_BY_TOPIC_ID and isinstance(wanted.topic, bytes):
            return FetchableTopicResponse(topic_id=wanted.topic, partitions=[])
        return FetchableTopicResponse(topic=str(wanted.topic), partitions=[])


def _aborted(partition: Replica, wanted: Wanted, records: FileRegion | bytes | None) -> list[AbortedTransaction]:
    """Aborted transactions that a `read_committed` consumer must leave out of what it gets."""
    if not records:
        return []
    found = partition.log.aborted_transactions(wanted.fetch_offset, partition.last_stable_offset)
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in found]
