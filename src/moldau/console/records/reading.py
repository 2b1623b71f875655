"""Reading a bounded part of a topic, with plain fetches: no group is made, nothing is committed.

The law: a scan ends after so many matches, records, bytes or seconds, whichever is first, and says how far it came, so
that the next one goes on there. It runs in a thread; who no longer listens stops it. A partition whose leader does not
answer is left out, and said to be: the others are read.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from moldau.cli.common import describe
from moldau.client.message_headers import read_headers
from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.cluster.offset_specs import EARLIEST, LATEST, gathered
from moldau.console.failures import ConsoleError
from moldau.console.records.decoding import Decoded, Decoder
from moldau.console.records.filters import Subject, Test

BEGINNING, END, TAIL, OFFSET, TIME = "beginning", "end", "tail", "offset", "time"
STARTS = (END, BEGINNING, OFFSET, TIME, TAIL)
POLL_S = 0.2
READ_S = 0.02
"""Time that a poll waits for a whole batch where there is an end: a page must not wait for records that never come."""
BATCH = 200
COUNT_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a scan."""

    matches: int = 50
    records: int = 200_000
    bytes: int = 64 * 1024 * 1024
    seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a scan has found."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Decoded
    value: Decoded
    headers: tuple[tuple[str, bytes | None], ...] | None
    """None: the name of one is no UTF-8."""
    raw_key: bytes | None
    raw_value: bytes | None


@dataclass(slots=True)
class Progress:
    """Position of a scan."""

    positions: dict[int, int]
    """The next offset, by partition."""
    ends: dict[int, int]
    """Offsets at which it ends."""
    records: int = 0
    bytes: int = 0
    matches: int = 0
    is_over: bool = False
    """Whether everything up to the ends was read."""
    begun: dict[int, int] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    """Partitions that are left out, and why."""

    @property
    def share(self) -> float:
        """Share of the offsets that are behind it, 0 to 1."""
        total = sum(max(0, self.ends[each] - self.begun[each]) for each in self.ends)
        done = sum(max(0, min(self.positions[each], self.ends[each]) - self.begun[each]) for each in self.ends)
        return 1.0 if total == 0 else done / total


@dataclass(frozen=True, slots=True)
class Query:
    """Question to a topic."""

    topic: str
    partitions: tuple[int, ...]
    test: Test
    start: str = END
    offset: int = 0
    time_ms: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    """Positions at which an earlier scan ended; counts more than `start`."""
    wanted: str = "auto"
    """Format of values."""
    is_committed: bool = True
    """Whether records of open and aborted transactions are left out."""
    is_filtered: bool = False
    key: str | None = None
    """The key that records have, as bytes or as a page shows it; None: any."""

    @property
    def is_newest(self) -> bool:
        """Whether the newest records are asked for, in whichever partitions they are."""
        return self.start == END and not self.positions and not self.is_filtered

    def takes(self, found: Found) -> bool:
        """Whether a record is one that is asked for."""
        return (self.key is None or _has_key(found, self.key)) and self.test(subject_of(found))


class Scan:
    """A scan of a topic; iterate over it in a thread, then look at `progress`."""

    def __init__(
        self,
        clients: Clients,
        decoder: Decoder,
        query: Query,
        bounds: Bounds,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clients, self._decoder, self._query, self._bounds = clients, decoder, query, bounds
        self._is_stopped = is_stopped
        self.progress = Progress({}, {})

    def __iter__(self) -> Iterator[Found | None]:
        """Records that match; None now and then, where there was none for a while."""
        level = "read_committed" if self._query.is_committed else "read_uncommitted"
        consumer = self._clients.reader(**{"isolation.level": level})
        try:
            yield from self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> Iterator[Found | None]:
        self._place(consumer)
        yield None  # from here on `progress` says what is read, also where there is nothing
        progress = self.progress
        deadline = time.monotonic() + self._bounds.seconds
        is_tail = self._query.start == TAIL
        while not self._is_stopped():
            progress.is_over = not is_tail and all(
                progress.positions[each] >= progress.ends[each] for each in progress.ends
            )
            if progress.is_over or self._is_enough(deadline, is_tail):
                return
            for message in consumer.consume(BATCH, POLL_S if is_tail else READ_S):
                found = self._take(message)
                if found is not None:
                    yield found
                # a record of a megabyte may take long, and there may be hundreds of them
                if progress.matches >= self._bounds.matches or time.monotonic() > deadline:
                    break
            yield None

    def _is_enough(self, deadline: float, is_tail: bool) -> bool:
        progress, bounds = self.progress, self._bounds
        if progress.matches >= bounds.matches or time.monotonic() > deadline:
            return True
        return not is_tail and (progress.records >= bounds.records or progress.bytes >= bounds.bytes)

    def _take(self, message: Message) -> Found | None:
        progress, partition, offset = self.progress, message.partition(), message.offset()
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF and partition is not None and offset is not None:
                progress.positions[partition] = max(progress.positions[partition], offset)
                return None
            raise KafkaException(error)
        if partition is None or offset is None:
            return None
        is_past = self._query.start != TAIL and offset >= progress.ends[partition]
        progress.positions[partition] = offset + 1
        if is_past or progress.matches >= self._bounds.matches:
            return None
        progress.records += 1
        progress.bytes += len(message.value() or b"") + len(message.key() or b"")
        found = found_in(message, self._decoder, self._query.wanted)
        if not self._query.takes(found):
            return None
        progress.matches += 1
        return found

    def _place(self, consumer: Consumer) -> None:
        """Go to where the question begins."""
        query = self._query
        starts, ends, unread = self._bounds_of_partitions()
        begin = {each: self._begin(each, starts, ends) for each in ends}
        if query.start == TIME and not query.positions:
            asked = [TopicPartition(query.topic, each, query.time_ms) for each in ends]
            for place in consumer.offsets_for_times(asked, timeout=REQUEST_S):
                is_past = place.offset in (OFFSET_END, -1)
                begin[place.partition] = ends[place.partition] if is_past else place.offset
        self.progress = Progress(begin, ends, begun=dict(begin), unread=unread)
        consumer.assign([TopicPartition(query.topic, each, begin[each]) for each in ends])

    def _bounds_of_partitions(self) -> tuple[dict[int, int], dict[int, int], dict[int, str]]:
        """Starts and ends of the partitions whose leaders answer, and why others do not. Raises KafkaException where
        none does."""
        query, admin = self._query, self._clients.admin
        level = IsolationLevel.READ_COMMITTED if query.is_committed else IsolationLevel.READ_UNCOMMITTED
        places = [TopicPartition(query.topic, each) for each in query.partitions]
        # both at once: one that is silent takes all the time that it has
        lows = admin.list_offsets(dict.fromkeys(places, EARLIEST), request_timeout=REQUEST_S)
        highs = admin.list_offsets(dict.fromkeys(places, LATEST), isolation_level=level, request_timeout=REQUEST_S)
        starts, without_start = gathered(lows, REQUEST_S + 1)
        ends, without_end = gathered(highs, REQUEST_S + 1)
        refused = {place.partition: error for place, error in (*without_start.items(), *without_end.items())}
        if refused and len(refused) == len(places):
            raise KafkaException(next(iter(refused.values())))
        return (
            {place.partition: offset for place, offset in starts.items() if place.partition not in refused},
            {place.partition: offset for place, offset in ends.items() if place.partition not in refused},
            {partition: describe(error) for partition, error in sorted(refused.items())},
        )

    def _begin(self, partition: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
        query, low, high = self._query, starts[partition], ends[partition]
        if partition in query.positions:
            return min(max(low, query.positions[partition]), high)
        if query.start == TAIL:
            return high
        if query.start == OFFSET:
            return min(max(low, query.offset), high)
        if query.is_newest:  # each partition may have all of them, or one of very many
            each = self._bounds.matches // len(ends)
            return max(low, high - max(1, each))
        return low


def found_in(message: Message, decoder: Decoder, wanted: str = "auto") -> Found:
    """The record in a message."""
    headers = read_headers(message)
    _, timestamp = message.timestamp()
    key, value = message.key(), message.value()
    return Found(
        message.partition() or 0,
        message.offset() or 0,
        timestamp,
        decoder.decode(key),
        decoder.decode(value, wanted),
        None if headers is None else tuple(headers),
        key,
        value,
    )


def subject_of(found: Found) -> Subject:
    headers = {name: (data or b"").decode(errors="replace") for name, data in found.headers or ()}
    return Subject(
        found.key.parsed,
        found.value.parsed,
        headers,
        found.partition,
        found.offset,
        found.timestamp_ms,
        found.value.size,
    )


def _has_key(found: Found, key: str) -> bool:
    return found.raw_key == key.encode() or key in (found.key.parsed, found.key.shown(in_line=True)["text"])


def one(clients: Clients, topic: str, partition: int, offset: int) -> Message:
    """The record at an offset. Raises ConsoleError where there is none."""
    consumer = clients.reader(**{"isolation.level": "read_uncommitted"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_S)
        if not low <= offset < high:
            raise ConsoleError(f"{topic}-{partition} has the offsets {low} to {high - 1}", 404)
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + REQUEST_S
        while time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None or message.offset() != offset:
                raise ConsoleError(
                    f"{topic}-{partition} has no record at {offset}: it was removed, or is a marker", 404
                )
            return message
        raise ConsoleError(f"{topic}-{partition} was not read within {REQUEST_S:g} s", 504)
    finally:
        consumer.close()


def chosen(clients: Clients, topic: str, places: Sequence[tuple[int, int]], seconds: float) -> list[Message]:
    """Records at partitions and offsets, all of them. Raises ConsoleError where one is missing or the time is up.

    Each has a consumer of its own: 5 ms. One that is assigned to another place waits for its last fetch first: 120 ms.
    """
    deadline = time.monotonic() + seconds
    found: list[Message] = []
    for partition, offset in places:
        if time.monotonic() > deadline:
            raise ConsoleError(
                f"{len(found)} of {len(places)} records were read within {seconds:g} s: choose less", 504
            )
        found.append(one(clients, topic, partition, offset))
    return found
