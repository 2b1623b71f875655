"""Produce, versions 0 to 13.

Batches are appended as they were sent, in the order of the request. Each partition gets its own result: one bad batch
does not hurt the others.

- acks=0: no answer; an error closes the connection, which is the only way to tell. acks=1: answered after the
  append. acks=-1: answered when the durability policy says so.
- Internal topics (`__consumer_offsets` ...) are refused with INVALID_TOPIC_EXCEPTION.
- Versions 0-1 carry message sets v0, 2 carries v1: stored as batches v2. From 3 on exactly one batch v2 a partition.
- Batches of compacted topics, of topics with a codec of their own and of old formats are opened: small ones at once,
  others off the event loop; what the connection sends behind such a one waits.
- 5+: the log start offset is told. 8+: an error message comes with the code (KIP-467). 13+: topics by id (KIP-516).
- Batches of transactions need WRITE on the transactional id. The first of a transaction in a partition waits until the
  transaction's coordinator has said that the partition is in it, and what the connection sends behind it waits too: up
  to 10 with errors that old clients know, 11 with TRANSACTION_ABORTABLE; 12+ add the partition (KIP-890).
"""

import asyncio
import contextlib
from asyncio import ensure_future
from collections.abc import Awaitable, Generator
from typing import NamedTuple, cast

from moldau.core.ids import TopicPartition
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.log.log import AppendResult, Log
from moldau.log.verification import VerificationGuard
from moldau.protocol.errors import ApiError, ErrorCode, ProtocolError
from moldau.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.records.validate import RecordsToOpen
from moldau.replication.delayed import DelayedCommit, Failures
from moldau.replication.durability import ACKS_ALL, NO_ACKS
from moldau.replication.partition import Partition
from moldau.requests import authorization
from moldau.requests.authorization import TOPIC, TRANSACTIONAL_ID, WRITE
from moldau.requests.context import RequestContext, Services
from moldau.requests.opener import append_opened
from moldau.requests.pending import PendingAnswer, awaited, undecided
from moldau.requests.pieces import Pieces
from moldau.requests.produce_answers import PRODUCE_BY_TOPIC_ID, accepted, refusal, with_leaders
from moldau.requests.transactional_produce import NO_VERDICTS, Verdicts, Verification, begin, is_transactional

ACKS = (ACKS_ALL, NO_ACKS, 1)

WRITTEN_BY_BROKERS = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topics are written by brokers only")
"""Error for internal topics: a coordinator's state in memory holds only records that it wrote itself."""


PIECES = Pieces("topic_data", "responses", "partition_data", "partition_responses")


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | PendingAnswer | None:
    try:
        verification = _check(request, context)
    except ApiError as error:
        return _refuse_all(error, request)
    if isinstance(verification, Verification):
        return undecided(_verify_and_append(verification, request, context))
    return _append(request, context, verification)


def _append(
    request: ProduceRequest, context: RequestContext, verdicts: Verdicts
) -> ProduceResponse | PendingAnswer | None:
    writing = _Writing(request, context, verdicts)
    appending = writing.append_all()
    to_open = next(appending, None)
    return writing.answer() if to_open is None else undecided(_append_opened(to_open, appending, writing))


async def _verify_and_append(
    verification: Verification, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | None:
    """The answer to batches that begin a transaction here. It holds up the connection's next requests, so that batches
    keep their order. The frame is the request's own: nobody reads into it meanwhile (KAFKA-15653)."""
    answer = _append(request, context, await verification.ask(context))
    return cast(ProduceResponse, await answer) if isinstance(answer, PendingAnswer) else answer


async def _append_opened(first: "_ToOpen", appending: "_Appending", writing: "_Writing") -> ProduceResponse | None:
    """The answer after some of the batches had to be opened elsewhere. It holds up the connection's next
    requests, so that batches keep their order; and it goes on without the client, as what is appended at once."""
    await asyncio.shield(ensure_future(_open_and_append(first, appending, writing.context.services)))
    answer = writing.answer()
    return cast(ProduceResponse, await answer) if isinstance(answer, PendingAnswer) else answer


async def _open_and_append(first: "_ToOpen", appending: "_Appending", services: Services) -> None:
    to_open: _ToOpen | None = first
    with contextlib.suppress(StopIteration):
        while to_open is not None:
            records, partition, acks, guard = to_open
            try:
                appended = await append_opened(records, partition, acks, services.opener, services.clock, guard)
            except ApiError as error:
                to_open = appending.throw(error)
            else:
                to_open = appending.send(appended)


class _ToOpen(NamedTuple):
    """A batch that takes too much work for the event loop."""

    records: RecordsToOpen
    partition: Partition
    acks: int
    guard: VerificationGuard | None


_Appending = Generator[_ToOpen, AppendResult, None]
"""Says what to open, and is sent what became of it."""


class Written:
    """The partitions that took a batch of a request; and of these, what is not committed yet, up to which offset."""

    __slots__ = ("partitions", "uncommitted")

    def __init__(self) -> None:
        self.partitions: list[Partition] = []
        self.uncommitted: list[tuple[Partition, int]] = []


class _Writing:
    """One request on its way to its answer."""

    __slots__ = ("_request", "_results", "_verdicts", "_written", "context")

    def __init__(self, request: ProduceRequest, context: RequestContext, verdicts: Verdicts) -> None:
        self._request = request
        self._verdicts = verdicts
        self._results: list[TopicProduceResponse] = []
        self._written = Written()
        self.context = context

    def append_all(self) -> _Appending:
        """Append batch by batch, in the order of the request."""
        for topic in self._request.topic_data:
            results: list[PartitionProduceResponse] = []
            self._results.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
            )
            yield from self._append_topic(topic, results)

    def _append_topic(self, topic: TopicProduceData, results: list[PartitionProduceResponse]) -> _Appending:
        services, version, acks = self.context.services, self.context.api_version, self._request.acks
        replicas, now_ms = services.replicas, services.clock.now_ms()
        guards, refusals = self._verdicts
        written = len(self._written.partitions)
        name = topic.name if version < PRODUCE_BY_TOPIC_ID else replicas.name_of(topic.topic_id)
        is_allowed = name is None or self.context.may(WRITE, TOPIC, name)
        for data in topic.partition_data:
            try:
                if name is None:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
                if not is_allowed:
                    raise authorization.refused(TOPIC)
                if name in INTERNAL_TOPICS:
                    raise WRITTEN_BY_BROKERS
                partition, guard = replicas.get(name, data.index), None
                if guards:
                    where = TopicPartition(name, data.index)
                    guard = guards.get(where)
                    if where in refusals:
                        raise refusals[where]
                try:
                    appended = partition.append(data.records or b"", version, acks, now_ms, services.allowance, guard)
                except RecordsToOpen as records:
                    appended = yield _ToOpen(records, partition, acks, guard)
            except ApiError as error:
                results.append(refusal(data.index, error))
            else:
                self._note(partition, appended)
                results.append(accepted(data.index, appended, partition.log.log_start_offset))
        if name is not None and len(self._written.partitions) > written:
            services.topic_clients.wrote(name, self.context.client_id, self.context.client_host)

    def _note(self, partition: Partition, appended: AppendResult) -> None:
        self._written.partitions.append(partition)
        # A batch that was there before may not be committed either.
        if self._request.acks == ACKS_ALL and partition.high_watermark <= appended.last_offset:
            self._written.uncommitted.append((partition, appended.last_offset + 1))

    def answer(self) -> ProduceResponse | PendingAnswer | None:
        """Answer for now, or for when the appended records are safe; None: the client wants none."""
        context, written, acks = self.context, self._written, self._request.acks
        response = ProduceResponse(responses=self._results)
        if acks == NO_ACKS:
            _fail_loudly(response)
            return None
        syncing = context.services.durability.when_durable([each.log for each in written.partitions], acks)
        if written.uncommitted:
            committing = DelayedCommit(
                context.services.scheduler,
                written.uncommitted,
                self._request.timeout_ms,
                lambda failed: with_leaders(_without(failed, response) if failed else response, context),
            ).future
            return awaited(committing if syncing is None else ensure_future(_after_sync(syncing, written, committing)))
        response = with_leaders(response, context)
        return response if syncing is None else awaited(ensure_future(_after_sync(syncing, written, response)))


def _refuse_all(refused: ApiError, request: ProduceRequest) -> ProduceResponse:
    response = ProduceResponse(responses=[_refuse_topic(refused, topic) for topic in request.topic_data])
    if request.acks == NO_ACKS:
        _fail_loudly(response)
    return response


def _refuse_topic(refused: ApiError, topic: TopicProduceData) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[refusal(data.index, refused) for data in topic.partition_data],
    )


def _fail_loudly(response: ProduceResponse) -> None:
    """Nobody waits for the answer: an error can only be told by closing the connection."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise ProtocolError(f"a write with acks=0 failed: {result.error_message}")


def _check(request: ProduceRequest, context: RequestContext) -> Verification | Verdicts:
    """Question to the coordinator before anything is appended; raises ApiError if the whole request is refused."""
    if request.acks not in ACKS:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1, not {request.acks}")
    if not any(is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data):
        return NO_VERDICTS
    transactional_id = request.transactional_id
    if transactional_id is None or not context.may(WRITE, TRANSACTIONAL_ID, transactional_id):
        raise authorization.refused(TRANSACTIONAL_ID)
    return begin(request, transactional_id, context)


async def _after_sync(
    syncing: Awaitable[frozenset[Log]], written: Written, answer: ProduceResponse | Awaitable[ProduceResponse]
) -> ProduceResponse:
    """The answer once the disk has it, too; partitions whose sync failed get KAFKA_STORAGE_ERROR."""
    response = answer if isinstance(answer, ProduceResponse) else await answer
    failed = await syncing
    return _without(_not_synced(failed, written), response) if failed else response


def _not_synced(failed: frozenset[Log], written: Written) -> Failures:
    return {each: ErrorCode.KAFKA_STORAGE_ERROR for each in written.partitions if each.log in failed}


def _without(failures: Failures, response: ProduceResponse) -> ProduceResponse:
    """The response with errors in place of what failed after all."""
    codes: dict[tuple[str | bytes, int], ErrorCode] = {}
    for partition, code in failures.items():
        topic, index = partition.topic_partition
        codes[topic, index] = codes[partition.topic_id, index] = code

    def result(topic: TopicProduceResponse, each: PartitionProduceResponse) -> PartitionProduceResponse:
        code = codes.get((topic.name, each.index)) or codes.get((topic.topic_id, each.index))
        if code is None or (each.error_code and code != ErrorCode.KAFKA_STORAGE_ERROR):
            return each
        return PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)

    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[result(topic, each) for each in topic.partition_responses],
        )
        for topic in response.responses
    ]
    return ProduceResponse(responses=topics, node_endpoints=response.node_endpoints)
