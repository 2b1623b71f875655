"""A produce request like one before it: the same bytes but for the correlation id and the batch.

That is what a producer sends all day long when a request carries one batch. The first one is decoded, handled and
answered like any other; what it came to is kept under its bytes. One that begins with the same bytes has the same
topic, partition and acks, so only its batch is looked at, and its answer differs from the first one's in four numbers.

The law: whatever is not plainly such a request, or is refused, is left to `k00_produce`. A refused append changes
nothing, so it can be tried again there. With acks=all the answer waits until the batch is committed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from moldau.core.files import Buffer
from moldau.core.topic_config import TopicConfig
from moldau.handlers.context import RequestContext
from moldau.handlers.later import Later
from moldau.handlers.produce_leaders import PRODUCE_BY_TOPIC_ID, with_leaders
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.framing import CORRELATION_ID_POSITION, REST_POSITION, SIZE_BYTES, Frame
from moldau.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.schema import Message, RecordData
from moldau.replication.durability import ACKS_ALL
from moldau.replication.partition import Partition

VERSION_MIN = 9  # KIP-482; older ones are laid out otherwise, and are rare
NO_TAGS = b"\0\0\0"
"""What follows the batch: no tagged fields of the partition, of the topic, of the request."""

KNOWN_MAX = 64
"""Kept per connection. A producer of many more partitions has many of them in one request."""

PREFIX_LENGTHS_MAX = 4
"""Requests for topics whose names differ in length have prefixes that do. With ids (version 13) all are one length."""

NO_ACKS = 0
LENGTH_SHIFTS = (0, 7, 14, 21, 28)
_PLACEHOLDER = 0x5AFE_C0DE_5AFE_C0DE
_placeholders = Struct(">qqq").pack(_PLACEHOLDER, _PLACEHOLDER, _PLACEHOLDER)
_int32 = Struct(">i").unpack_from

Respond = Callable[[int, Message], list[RecordData]]


class Known(NamedTuple):
    """What the requests that begin with the same bytes come to."""

    partition: Partition
    config: TopicConfig
    acks: int
    pack_answer: Callable[..., bytes]
    answer_size: int
    answer_head: bytes  # from behind the correlation id to the base offset
    answer_tail: bytes  # from behind the log start offset
    timeout_ms: int

    @property
    def topic(self) -> str:
        return self.partition.topic_partition.topic


class Uncommitted(Later):
    """An answer that waits until its batch is committed."""

    __slots__ = ("_append_time", "_base_offset", "_correlation_id", "_repeats", "deadline", "known")

    def __init__(
        self,
        repeats: "ProduceRepeats",
        known: Known,
        correlation_id: int,
        base_offset: int,
        append_time: int,
        deadline: float,
    ) -> None:
        self._then = None
        self.chunks = None
        self.failed = False
        self._repeats = repeats
        self.known = known
        self._correlation_id = correlation_id
        self._base_offset = base_offset
        self._append_time = append_time
        self.deadline = deadline

    def committed(self, partition: Partition, error: ErrorCode) -> None:
        if self.chunks is not None:
            return  # its time was up
        if error is not ErrorCode.NONE:
            self.complete(self._repeats.refuse(self.known, self._correlation_id, error))
            return
        _, _, _, pack_answer, size, head, tail, _ = self.known
        start = partition.log.log_start_offset
        self.complete(
            [pack_answer(size, self._correlation_id, head, self._base_offset, self._append_time, start, tail)]
        )


class ProduceRepeats:
    """Those of one connection and version."""

    __slots__ = (
        "_context",
        "_known",
        "_loop",
        "_now_ms",
        "_prefix_ends",
        "_respond",
        "_timer",
        "_version",
        "_waiting",
    )

    def __init__(self, context: RequestContext, respond: Respond) -> None:
        self._context = context
        self._respond = respond
        self._version = context.api_version
        self._now_ms = context.services.clock.now_ms
        self._known: dict[bytes, Known] = {}
        self._prefix_ends: tuple[int, ...] = ()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Uncommitted] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def serve(self, frame: Frame) -> bytes | Later | None:
        """Append and answer; None: this is for the handler."""
        for prefix_end in self._prefix_ends:
            known = self._known.get(bytes(frame[REST_POSITION:prefix_end]))
            if known is not None:
                break
        else:
            return None
        partition, config, acks, pack_answer, size, head, tail, _ = known
        log = partition.log
        if not partition.is_led or log.config is not config:
            self._forget()
            return None
        records = _only_records(frame, prefix_end)
        if records is None:
            return None
        try:
            base_offset, last_offset, append_time, _ = partition.append(records, self._version, acks, self._now_ms())
        except ApiError:
            return None
        (correlation_id,) = _int32(frame, CORRELATION_ID_POSITION)
        if last_offset >= partition.high_watermark and acks == ACKS_ALL:
            return self._when_committed(known, correlation_id, base_offset, last_offset, append_time)
        return pack_answer(size, correlation_id, head, base_offset, append_time, log.log_start_offset, tail)

    def _when_committed(
        self, known: Known, correlation_id: int, base_offset: int, last_offset: int, append_time: int
    ) -> Later:
        """The answer once every in-sync replica has the batch."""
        waiting = self._waiting
        while waiting and waiting[0].chunks is not None:
            waiting.popleft()
        deadline = self._loop.time() + known.timeout_ms / 1000
        uncommitted = Uncommitted(self, known, correlation_id, base_offset, append_time, deadline)
        waiting.append(uncommitted)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_time)
        known.partition.wait_for_commit(last_offset + 1, uncommitted)
        return uncommitted

    def _check_time(self) -> None:
        """One timer for all that waits: it looks at the oldest, and is set anew only when it fires."""
        waiting, now = self._waiting, self._loop.time()
        self._timer = None
        while waiting and (waiting[0].chunks is not None or waiting[0].deadline <= now):
            oldest = waiting.popleft()
            if oldest.chunks is None:
                oldest.committed(oldest.known.partition, ErrorCode.REQUEST_TIMED_OUT)
        if waiting:
            self._timer = self._loop.call_at(waiting[0].deadline, self._check_time)

    def refuse(self, known: Known, correlation_id: int, error: ErrorCode) -> list[RecordData]:
        """The answer to a request that was appended and cannot be acknowledged."""
        index = known.partition.topic_partition.partition
        result = PartitionProduceResponse(index=index, error_code=error, base_offset=-1)
        topic = TopicProduceResponse(name=known.topic, topic_id=known.partition.topic_id, partition_responses=[result])
        return self._respond(correlation_id, with_leaders(ProduceResponse(responses=[topic]), self._context))

    def may_repeat(self, request: ProduceRequest) -> bool:
        topics = request.topic_data
        return request.acks != NO_ACKS and len(topics) == 1 and len(topics[0].partition_data) == 1

    def learn(self, frame: Frame, request: ProduceRequest, response: ProduceResponse) -> None:
        """Remember a request that was served, if its kind can be served here."""
        prefix_end = _prefix_end(frame, len(request.topic_data[0].partition_data[0].records or b""))
        partition = self._written(request, response)
        if prefix_end is None or partition is None:
            return
        if len(self._known) >= KNOWN_MAX or len(self._prefix_ends) >= PREFIX_LENGTHS_MAX:
            self._forget()
        self._prefix_ends = tuple({*self._prefix_ends, prefix_end})
        known = Known(partition, partition.log.config, request.acks, *self._answer_like(response), request.timeout_ms)
        self._known[bytes(frame[REST_POSITION:prefix_end])] = known

    def _written(self, request: ProduceRequest, response: ProduceResponse) -> Partition | None:
        """The partition that took the one batch of a request and need not sync it."""
        services, (topic,) = self._context.services, request.topic_data
        if response.responses[0].partition_responses[0].error_code:
            return None
        name = topic.name if self._version < PRODUCE_BY_TOPIC_ID else services.replicas.name_of(topic.topic_id)
        partition = None if name is None else services.replicas.find(name, topic.partition_data[0].index)
        if partition is None or not services.durability.is_immediate(partition.log, request.acks):
            return None
        return partition

    def _forget(self) -> None:
        self._known = {}
        self._prefix_ends = ()

    def _answer_like(self, response: ProduceResponse) -> tuple[Callable[..., bytes], int, bytes, bytes]:
        """How to write a response that differs only in correlation id, base offset, append time and log start."""
        (topic,) = response.responses
        (result,) = topic.partition_responses
        example = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=result.index,
                            base_offset=_PLACEHOLDER,
                            log_append_time_ms=_PLACEHOLDER,
                            log_start_offset=_PLACEHOLDER,
                        )
                    ],
                )
            ]
        )
        written = b"".join(chunk for chunk in self._respond(0, example) if isinstance(chunk, bytes))
        head, tail = written[2 * SIZE_BYTES :].split(_placeholders)
        layout = Struct(f">ii{len(head)}sqqq{len(tail)}s")
        return layout.pack, len(written) - SIZE_BYTES, head, tail


def _only_records(frame: Frame, position: int) -> Buffer | None:
    """The records whose length is at `position`, if they are the last of the request and it has no tagged fields."""
    start, stop, length = position, len(frame) - len(NO_TAGS), -1
    for shift in LENGTH_SHIFTS:
        if start >= stop:
            return None
        byte = frame[start]
        start += 1
        length += (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return frame[start:stop] if start + length == stop and frame[stop:] == NO_TAGS else None


def _prefix_end(frame: Frame, records_bytes: int) -> int | None:
    """Where the length of the records is, if they are the last of the request and it has no tagged fields."""
    for length_bytes in range(1, len(LENGTH_SHIFTS) + 1):
        position = len(frame) - len(NO_TAGS) - records_bytes - length_bytes
        records = _only_records(frame, position) if position > REST_POSITION else None
        if records is not None and len(records) == records_bytes:
            return position
    return None
