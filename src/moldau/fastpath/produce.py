"""A produce request like one before it: the same bytes but for the correlation id and the batches.

That is what a producer sends all day long. The first one is decoded, handled and answered like any other; what it came
to is kept under its bytes up to the partitions. One that begins with the same bytes has the same topic and acks, so
only its batches are looked at, and its answer differs from the first one's in a few numbers a partition.

The law: whatever is not plainly such a request is left to `k00_produce` before anything is appended. With acks=all the
answer waits until the batches are committed, and synced where the durability policy asks for it. Batches of a
transaction come this way once it is open in all of their partitions: until then its coordinator has to be asked.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moldau.core.invariants import InvariantError
from moldau.core.scheduler import Cancellable
from moldau.fastpath.repeats import Respond
from moldau.log.log import AppendResult, Log
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, SIZE_BYTES, Frame
from moldau.protocol.layouts import (
    END_OF_PRODUCE,
    END_OF_RESULT,
    INDEX_BYTES,
    LENGTH_BYTES_USUAL,
    ONE_BYTE_COUNT_MAX,
    PRODUCE_RESULT_BYTES,
    RESULT_HEAD_BYTES,
    int32_at,
    pack_result,
    pack_result_numbers,
    pack_size_and_correlation_id,
    produce_partition_at,
)
from moldau.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.schema import RecordData
from moldau.protocol.source import write_varint
from moldau.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    NO_TIMESTAMP,
    PRODUCER_POSITION,
    TRANSACTIONAL_FLAG,
    producer_at,
)
from moldau.records.validate import RecordsToOpen
from moldau.replication.durability import ACKS_ALL, NO_ACKS, Failed, counts_records
from moldau.replication.lane import Lane
from moldau.replication.partition import Partition
from moldau.requests.context import RequestContext
from moldau.requests.opener import append_opened
from moldau.requests.pending import LastAnswer, PendingAnswer
from moldau.requests.produce_answers import PRODUCE_BY_TOPIC_ID, accepted, refusal, with_leaders

KNOWN_MAX = 64
"""Topics (and acks) kept per connection."""

HELD_MAX = 16
"""Answers that wait for a sync as one."""

PREFIX_LENGTHS_MAX = 4
"""Requests for topics whose names differ in length have prefixes that do. With ids (version 13) all are one length."""

_PLACEHOLDER = 0x5AFE_C0DE_5AFE_C0DE
_placeholders = pack_result_numbers(_PLACEHOLDER, _PLACEHOLDER, _PLACEHOLDER)
_COUNT_BYTES = 1
_END_BYTES = len(END_OF_PRODUCE)
_LENGTH_END = INDEX_BYTES + LENGTH_BYTES_USUAL
_counts = [(count + 1).to_bytes(_COUNT_BYTES, "big") for count in range(ONE_BYTE_COUNT_MAX + 1)]
"""Bytes of each possible number of partitions."""

Target = tuple[int, Lane, int, int]
"""Index, the way into the partition, and where in the frame its batch starts and stops."""

Outcome = AppendResult | ApiError


@dataclass(slots=True, frozen=True)
class Known:
    """Facts shared by the requests that begin with the same bytes. (Slots are read faster than a tuple's fields.)"""

    prefix: bytes  # from behind the correlation id to the partitions
    prefix_end: int
    name: str
    topic_id: bytes
    acks: int
    timeout_ms: int
    is_transactional: bool  # which it may be: with the first one the right to the transactional id was asked for
    is_synced: bool  # before it is answered
    answer_head: bytes  # from behind the correlation id to the count of partitions
    answer_tail: bytes  # from behind the partitions
    answer_bytes: int  # the size that it says, but for the partitions
    lanes: dict[int, Lane]


class Uncommitted(PendingAnswer):
    """An answer that waits until its batches are committed and synced."""

    __slots__ = (
        "_correlation_id",
        "_is_syncing",
        "_left",
        "_log_starts",
        "_outcomes",
        "_repeats",
        "_targets",
        "deadline",
        "known",
    )

    def __init__(
        self,
        repeats: "ProduceRepeats",
        known: Known,
        correlation_id: int,
        targets: list[Target],
        outcomes: list[Outcome],
        log_starts: list[int],
        deadline: float,
    ) -> None:
        super().__init__()
        self._repeats = repeats
        self.known = known
        self._correlation_id = correlation_id
        self._targets = targets
        self._outcomes = outcomes
        self._log_starts = log_starts
        self._left = 0  # partitions that are not committed
        self._is_syncing = False
        self.deadline = deadline

    def wait(self, awaited: list[tuple[Partition, int]], *, is_syncing: bool) -> None:
        """Wait until these partitions are committed up to these offsets, and for `synced` if that is to come."""
        self._left = len(awaited)
        self._is_syncing = is_syncing
        for partition, next_offset in awaited:
            partition.wait_for_commit(next_offset, self)

    def committed(self, partition: Partition, error: ErrorCode) -> None:
        if self.chunks is not None:
            return  # its time was up
        if error is not ErrorCode.NONE:
            self._fail([partition], error)
        self._left -= 1
        self._complete_if_safe()

    def synced(self, failed: Failed) -> None:
        self._is_syncing = False
        if failed:
            lost = [lane.partition for _, lane, _, _ in self._targets if lane.log in failed]
            self._fail(lost, ErrorCode.KAFKA_STORAGE_ERROR)
        self._complete_if_safe()

    def cancel(self) -> None:
        super().cancel()
        for partition, _ in _awaited(self._targets, self._outcomes):
            partition.forget(self)

    def time_is_up(self) -> None:
        """Stop waiting for the other replicas; this disk answers, or fails."""
        late = [partition for partition, _ in _awaited(self._targets, self._outcomes)]
        for partition in late:
            partition.forget(self)
        self._fail(late, ErrorCode.REQUEST_TIMED_OUT)
        self._left = 0
        self._complete_if_safe()

    def _fail(self, partitions: Sequence[Partition], error: ErrorCode) -> None:
        for position, (_, lane, _, _) in enumerate(self._targets):
            if lane.partition in partitions and isinstance(self._outcomes[position], AppendResult):
                self._outcomes[position] = ApiError(error)  # it is in the log, and not committed

    def _complete_if_safe(self) -> None:
        if self._left or self._is_syncing:
            return
        answer = self._repeats.answer(self.known, self._correlation_id, self._targets, self._outcomes, self._log_starts)
        self.complete([answer])


HeldRequest = tuple["ProduceRepeats", Known, int, list[Target], list[int]]
"""The fast path of a request, what is known of it, its correlation id, its targets and the offsets of their batches."""

JOINED: Final = b""
"""The answer to a request whose answer is part of the one before it."""


class Held(PendingAnswer):
    """Answers that are finished, to batches that are committed: they are held back until this disk has them, too.

    Requests that a client has sent one behind the other wait for the same sync, and their answers leave together.
    """

    __slots__ = ("_answers", "_requests")

    def __init__(self, answer: bytes, request: HeldRequest) -> None:
        """`request` is for a sync that fails."""
        super().__init__()
        self._answers: list[RecordData] = [answer]
        self._requests = [request]

    @property
    def has_room(self) -> bool:
        return len(self._answers) < HELD_MAX

    def join(self, answer: bytes, request: HeldRequest) -> None:
        """Take one more, whose batch is covered by the same sync."""
        self._answers.append(answer)
        self._requests.append(request)

    def synced(self, failed: Failed) -> None:
        """Complete, in fewer steps than `complete`: nobody stops, encodes or watches an answer of a fast path."""
        self.chunks = [_with_errors(failed, each) for each in self._requests] if failed else self._answers
        self._requests = []  # a connection remembers its last answer, and shall keep no log alive
        then, self._then = self._then, None
        if then is not None:
            then(self)


def _with_errors(failed: Failed, request: HeldRequest) -> bytes:
    repeats, known, correlation_id, targets, offsets = request
    outcomes = [
        ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if lane.log in failed
        else AppendResult(offset, offset, NO_TIMESTAMP, False)
        for offset, (_, lane, _, _) in zip(offsets, targets, strict=True)
    ]
    log_starts = [lane.log.log_start_offset for _, lane, _, _ in targets]
    return repeats.answer(known, correlation_id, targets, outcomes, log_starts)


class Opened(PendingAnswer):
    """An answer for which batches have to be opened first. The decision is made also if the client is gone by then."""

    __slots__ = ("_task",)

    def __init__(self, opening: Coroutine[Any, Any, bytes | PendingAnswer]) -> None:
        super().__init__(holds_order=True)
        self._task = asyncio.ensure_future(opening)
        self._task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[bytes | PendingAnswer]") -> None:
        if not task.cancelled():
            self.complete_with(lambda: _chunks(task.result()))


class ProduceRepeats:
    """The fast path of one connection and version."""

    __slots__ = (
        "_context",
        "_durability",
        "_known",
        "_last",
        "_last_answer",
        "_now_ms",
        "_prefix_ends",
        "_respond",
        "_scheduler",
        "_timer",
        "_version",
        "_waiting",
    )

    def __init__(self, context: RequestContext, respond: Respond, last_answer: LastAnswer) -> None:
        self._context = context
        self._respond = respond
        self._last_answer = last_answer
        self._version = context.api_version
        self._now_ms = context.services.clock.now_ms
        self._durability = context.services.durability
        self._known: dict[bytes, Known] = {}
        self._prefix_ends: tuple[int, ...] = ()
        self._last: Known | None = None  # served: the next one is mostly like it
        self._scheduler = context.services.scheduler
        self._waiting: deque[Uncommitted] = deque()
        self._timer: Cancellable | None = None

    def serve(self, frame: Frame) -> bytes | PendingAnswer | None:
        """Append and answer; None: this is for the handler."""
        known = self._last
        if known is None or frame[REST_POSITION : known.prefix_end] != known.prefix:
            known = self._last = self._find(frame)
            if known is None:
                return None
        is_transactional = known.is_transactional
        targets = _targets(frame, known.prefix_end, known.lanes, is_transactional)
        if targets is None or (is_transactional and not _is_open_in(frame, targets)):
            return None
        return self._append(frame if type(frame) is memoryview else memoryview(frame), known, targets)

    def _find(self, frame: Frame) -> Known | None:
        """The requests that begin as this one does."""
        for prefix_end in self._prefix_ends:
            known = self._known.get(bytes(frame[REST_POSITION:prefix_end]))
            if known is not None:
                return known
        return None

    def _append(self, frame: memoryview, known: Known, targets: list[Target]) -> bytes | PendingAnswer | None:
        """Each batch by its lane; those behind one that is not plain, or that failed, go the long way."""
        now_ms = self._now_ms()
        (correlation_id,) = int32_at(frame, CORRELATION_ID_POSITION)
        size = known.answer_bytes + len(targets) * PRODUCE_RESULT_BYTES
        parts = [pack_size_and_correlation_id(size, correlation_id), known.answer_head, _counts[len(targets)]]
        offsets: list[int] = []
        is_committed, awaits_commit = True, known.acks == ACKS_ALL
        failed: ApiError | None = None
        try:
            for index, lane, start, stop in targets:
                offset = lane.append(frame, start, stop, now_ms)
                if offset is None:
                    break
                offsets.append(offset)
                parts.append(pack_result(index, 0, offset, NO_TIMESTAMP, lane.log.log_start_offset, END_OF_RESULT))
                if awaits_commit and lane.partition.high_watermark <= offset:
                    is_committed = False
        except ApiError as error:
            failed = error  # its batch may carry an offset by now: no other way would take it
        except InvariantError as error:
            failed = lane.log.stop(error)
        if len(offsets) == len(targets) and (is_committed or not awaits_commit):
            parts.append(known.answer_tail)
            answer = b"".join(parts)
            if not known.is_synced:
                return answer
            return self._hold(answer, (self, known, correlation_id, targets, offsets))
        outcomes: list[Outcome] = [
            AppendResult(offset, lane.log.log_end_offset - 1, NO_TIMESTAMP, False)
            for offset, (_, lane, _, _) in zip(offsets, targets, strict=False)
        ]
        if failed is not None:
            outcomes.append(failed)
        return self._append_rest(frame, known, correlation_id, targets, outcomes, now_ms)

    def _hold(self, answer: bytes, request: HeldRequest) -> bytes | PendingAnswer:
        """Hold an answer back: with the one before it, if the same sync of one log is still to begin for that."""
        targets, last = request[3], self._last_answer.pending
        if len(targets) > 1:
            held = Held(answer, request)
            self._durability.commit([lane.log for _, lane, _, _ in targets], held.synced)
            return held
        log = targets[0][1].log
        if type(last) is Held and last.has_room and self._durability.is_last(log, last.synced):
            last.join(answer, request)
            return JOINED
        held = Held(answer, request)
        self._durability.commit((log,), held.synced)
        return held

    def _append_rest(
        self,
        frame: memoryview,
        known: Known,
        correlation_id: int,
        targets: list[Target],
        outcomes: list[Outcome],
        now_ms: int,
    ) -> bytes | PendingAnswer | None:
        """The batches that have no outcome yet, and the answer."""
        allowance = self._context.services.allowance
        for position in range(len(outcomes), len(targets)):
            _, lane, start, stop = targets[position]
            try:
                batch = frame[start:stop]
                outcomes.append(lane.partition.append(batch, self._version, known.acks, now_ms, allowance))
            except ApiError as error:
                outcomes.append(error)
            except RecordsToOpen:
                if not outcomes:
                    return None
                left = [bytes(frame[start:stop]) for _, _, start, stop in targets[position:]]
                return Opened(self._open_rest(left, known, correlation_id, targets, outcomes))
        return self._appended(known, correlation_id, targets, outcomes)

    async def _open_rest(
        self, batches: list[bytes], known: Known, correlation_id: int, targets: list[Target], outcomes: list[Outcome]
    ) -> bytes | PendingAnswer:
        """Append the rest where the first batch has to be opened, and perhaps others."""
        services = self._context.services
        for batch, (_, lane, _, _) in zip(batches, targets[len(outcomes) :], strict=True):
            partition, now_ms = lane.partition, self._now_ms()
            try:
                outcomes.append(partition.append(batch, self._version, known.acks, now_ms, services.allowance))
            except ApiError as error:
                outcomes.append(error)
            except RecordsToOpen as to_open:
                try:
                    outcomes.append(
                        await append_opened(to_open, partition, known.acks, services.opener, services.clock)
                    )
                except ApiError as error:
                    outcomes.append(error)
        return self._appended(known, correlation_id, targets, outcomes)

    def _appended(
        self, known: Known, correlation_id: int, targets: list[Target], outcomes: list[Outcome]
    ) -> bytes | PendingAnswer:
        """The answer to batches that all have an outcome."""
        awaited = _awaited(targets, outcomes) if known.acks == ACKS_ALL else []
        written = _written(targets, outcomes) if known.is_synced else []
        log_starts = [lane.log.log_start_offset for _, lane, _, _ in targets]
        if not awaited and not written:
            return self.answer(known, correlation_id, targets, outcomes, log_starts)
        uncommitted = self._when_committed(known, correlation_id, targets, outcomes, log_starts)
        if written:
            self._durability.commit(written, uncommitted.synced)
        uncommitted.wait(awaited, is_syncing=bool(written))
        return uncommitted

    def answer(
        self, known: Known, correlation_id: int, targets: list[Target], outcomes: list[Outcome], log_starts: list[int]
    ) -> bytes:
        """The whole answer. The logs began at `log_starts` when the batches were appended."""
        size = known.answer_bytes + len(targets) * PRODUCE_RESULT_BYTES
        parts = [pack_size_and_correlation_id(size, correlation_id), known.answer_head, _counts[len(targets)]]
        for (index, _, _, _), outcome, log_start in zip(targets, outcomes, log_starts, strict=True):
            if isinstance(outcome, ApiError):
                return self._answer_with_errors(known, correlation_id, targets, outcomes, log_starts)
            base_offset, _, append_time, _ = outcome
            parts.append(pack_result(index, 0, base_offset, append_time, log_start, END_OF_RESULT))
        parts.append(known.answer_tail)
        return b"".join(parts)

    def _answer_with_errors(
        self, known: Known, correlation_id: int, targets: list[Target], outcomes: list[Outcome], log_starts: list[int]
    ) -> bytes:
        results = [
            refusal(index, outcome) if isinstance(outcome, ApiError) else accepted(index, outcome, log_start)
            for (index, _, _, _), outcome, log_start in zip(targets, outcomes, log_starts, strict=True)
        ]
        topic = TopicProduceResponse(name=known.name, topic_id=known.topic_id, partition_responses=results)
        return self._encode(correlation_id, with_leaders(ProduceResponse(responses=[topic]), self._context))

    def _encode(self, correlation_id: int, response: ProduceResponse) -> bytes:
        """An answer has no records: it is one piece."""
        return b"".join(chunk for chunk in self._respond(correlation_id, response) if isinstance(chunk, bytes))

    def _when_committed(
        self, known: Known, correlation_id: int, targets: list[Target], outcomes: list[Outcome], log_starts: list[int]
    ) -> Uncommitted:
        """The answer once every in-sync replica has the batches, or the time is up."""
        waiting = self._waiting
        while waiting and waiting[0].chunks is not None:
            waiting.popleft()
        deadline = self._scheduler.time() + known.timeout_ms / 1000
        uncommitted = Uncommitted(self, known, correlation_id, targets, outcomes, log_starts, deadline)
        waiting.append(uncommitted)
        if self._timer is None:
            self._timer = self._scheduler.call_at(deadline, self._check_time)
        return uncommitted

    def _check_time(self) -> None:
        """One timer for all that waits: it looks at the oldest, and is set anew only when it fires."""
        waiting, now = self._waiting, self._scheduler.time()
        self._timer = None
        while waiting and (waiting[0].chunks is not None or waiting[0].deadline <= now):
            oldest = waiting.popleft()
            if oldest.chunks is None:
                oldest.time_is_up()
        if waiting:
            self._timer = self._scheduler.call_at(waiting[0].deadline, self._check_time)

    # Learning

    def may_repeat(self, request: ProduceRequest) -> bool:
        topics = request.topic_data
        return request.acks != NO_ACKS and len(topics) == 1 and 1 <= len(topics[0].partition_data) <= ONE_BYTE_COUNT_MAX

    def learn(self, frame: Frame, request: ProduceRequest, response: ProduceResponse) -> None:
        """Remember a request that was served, if its kind can be served here."""
        lanes = self._written(request, response)
        prefix_end = _prefix_end(frame, request, lanes)
        if prefix_end is None:
            return
        prefix = bytes(frame[REST_POSITION:prefix_end])
        known = self._known.get(prefix)
        if known is None:
            if len(self._known) >= KNOWN_MAX or len(self._prefix_ends) >= PREFIX_LENGTHS_MAX:
                self._known = {}
                self._prefix_ends = ()
                self._last = None
            self._prefix_ends = tuple({*self._prefix_ends, prefix_end})
            known = self._known[prefix] = self._new(request, response, prefix)
        known.lanes.update(lanes)

    def _written(self, request: ProduceRequest, response: ProduceResponse) -> dict[int, Lane]:
        """Into the partitions that took their batch."""
        services, (topic,) = self._context.services, request.topic_data
        name = topic.name if self._version < PRODUCE_BY_TOPIC_ID else services.replicas.name_of(topic.topic_id)
        written: dict[int, Lane] = {}
        for result in response.responses[0].partition_responses:
            partition = None if name is None or result.error_code else services.replicas.find(name, result.index)
            if partition is not None and not counts_records(partition.log):
                written[result.index] = partition.lane
        return written

    def _new(self, request: ProduceRequest, response: ProduceResponse, prefix: bytes) -> Known:
        topic = response.responses[0]
        example = PartitionProduceResponse(
            base_offset=_PLACEHOLDER, log_append_time_ms=_PLACEHOLDER, log_start_offset=_PLACEHOLDER
        )
        examples = [TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[example])]
        written = self._encode(0, ProduceResponse(responses=examples))
        before, after = written[2 * SIZE_BYTES :].split(_placeholders)
        head = before[: -_COUNT_BYTES - RESULT_HEAD_BYTES]
        tail = after[len(END_OF_RESULT) :]
        return Known(
            prefix=prefix,
            prefix_end=REST_POSITION + len(prefix),
            name=topic.name,
            topic_id=topic.topic_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            is_transactional=request.transactional_id is not None,
            is_synced=self._context.services.durability.is_synced(request.acks),
            answer_head=head,
            answer_tail=tail,
            answer_bytes=SIZE_BYTES + len(head) + _COUNT_BYTES + len(tail),
            lanes={},
        )


def _chunks(answer: bytes | PendingAnswer) -> list[RecordData] | PendingAnswer:
    return [answer] if isinstance(answer, bytes) else answer


def _awaited(targets: list[Target], outcomes: list[Outcome]) -> list[tuple[Partition, int]]:
    """The partitions whose batch is not committed, and the offset behind it."""
    return [
        (lane.partition, outcome.last_offset + 1)
        for (_, lane, _, _), outcome in zip(targets, outcomes, strict=True)
        if isinstance(outcome, AppendResult) and outcome.last_offset >= lane.partition.high_watermark
    ]


def _written(targets: list[Target], outcomes: list[Outcome]) -> list[Log]:
    """The logs that took their batch."""
    return [
        lane.log
        for (_, lane, _, _), outcome in zip(targets, outcomes, strict=True)
        if isinstance(outcome, AppendResult)
    ]


def _targets(frame: Frame, position: int, lanes: dict[int, Lane], in_transaction: bool) -> list[Target] | None:
    """The partitions whose count is at `position`, if all can be written to, and if they end the request: there are
    no tagged fields. Either all batches say that they are of a transaction, or none does."""
    end = len(frame) - _END_BYTES
    if position >= end or not 2 <= frame[position] <= ONE_BYTE_COUNT_MAX + 1:
        return None
    found: list[Target] = []
    count, flag = frame[position] - 1, TRANSACTIONAL_FLAG if in_transaction else 0
    position += 1
    while count:
        count -= 1
        start = position + _LENGTH_END
        if start > end:
            return None
        index, first, second, third = produce_partition_at(frame, position)
        if first < 0x80:
            start -= 2
            stop = start + first - 1
        elif second < 0x80:
            start -= 1
            stop = start + (first & 0x7F | second << 7) - 1
        elif third < 0x80:
            stop = start + (first & 0x7F | (second & 0x7F) << 7 | third << 14) - 1
        else:
            return None
        attributes_position = start + ATTRIBUTES_POSITION
        if not attributes_position < stop < end or frame[stop]:
            return None
        if frame[attributes_position] & TRANSACTIONAL_FLAG != flag:
            return None  # a transaction needs a right of its own, and perhaps a word of its coordinator
        lane = lanes.get(index)
        if lane is None or not lane.is_open:
            lanes.pop(index, None)
            return None
        found.append((index, lane, start, stop))
        position = stop + 1
    return found if position == end and frame[end:] == END_OF_PRODUCE else None


def _is_open_in(frame: Frame, targets: list[Target]) -> bool:
    """Whether the batches are of one transaction, which is open in all of the partitions."""
    producers = set()
    for _, lane, start, stop in targets:
        if stop - start < BATCH_HEADER_BYTES:
            return False
        producer = producer_id, epoch = producer_at(frame, start + PRODUCER_POSITION)
        if not lane.log.producers.is_open(producer_id, epoch):
            return False
        producers.add(producer)
    return len(producers) == 1


def _prefix_end(frame: Frame, request: ProduceRequest, lanes: dict[int, Lane]) -> int | None:
    """Position of the count of partitions, if a request like this one can be served here. One with a transactional id
    can be if all of its batches are of the transaction: otherwise nobody has asked for the right to the id."""
    sizes = [(each.index, len(each.records or b"")) for each in request.topic_data[0].partition_data]
    behind = sum(INDEX_BYTES + len(write_varint(size + 1)) + size + 1 for _, size in sizes)
    position = len(frame) - len(END_OF_PRODUCE) - behind - _COUNT_BYTES
    if position <= REST_POSITION:
        return None
    found = _targets(frame, position, lanes, request.transactional_id is not None)
    return position if found and [(index, stop - start) for index, _, start, stop in found] == sizes else None
