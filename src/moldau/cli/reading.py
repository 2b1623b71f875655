"""Partitions read from exact places to exact places, without a group."""

import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from moldau.cli.common import REQUEST_TIMEOUT_S, describe
from moldau.cli.failures import ToolError
from moldau.cli.metadata import partitions_of

BATCH_RECORDS = 500
POLL_S = 0.2
CLOSE_TIMEOUT_S = 10.0

Place = tuple[str, int]
"""A topic and the number of a partition."""

_PASSING_ERRORS = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)


class Start(NamedTuple):
    """The place to begin at: the first of these that is given, else `offset`."""

    offset: int = OFFSET_END
    """An offset, or OFFSET_BEGINNING or OFFSET_END."""
    time_ms: int | None = None
    last: int | None = None
    """The last so many records of each partition."""


class End(NamedTuple):
    """The place to end before: nothing given means never."""

    offset: int | None = None
    time_ms: int | None = None
    at_present: bool = False
    """Whether the end that a partition has now is the end."""

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.at_present or self.offset is not None or self.time_ms is not None


def matching_topics(consumer: Consumer, expression: str) -> list[str]:
    """Topics whose whole name matches, without the internal ones, as Kafka's consumers do it."""
    try:
        pattern = re.compile(expression.replace(",", "|"))
    except re.error as error:
        raise ToolError(f"{expression!r} is not a regular expression: {error}") from error
    present = consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return sorted(name for name in present if pattern.fullmatch(name) and not name.startswith("__"))


def places_of(consumer: Consumer, topics: Iterable[str], only: Sequence[int] | None = None) -> list[Place]:
    """The partitions of topics; ToolError where one of `only` is not there."""
    places: list[Place] = []
    for topic in topics:
        present = partitions_of(consumer, topic)
        for number in only or ():
            if number not in present:
                raise ToolError(f"topic {topic!r} has no partition {number}: it has {len(present)}")
        places += [(topic, number) for number in (only or present)]
    return places


def positions(consumer: Consumer, places: Sequence[Place], start: Start) -> list[TopicPartition]:
    """The place to begin at, of each partition."""
    if start.time_ms is not None:
        return offsets_at(consumer, places, start.time_ms)
    if start.last is not None:
        bounds = {place: watermarks(consumer, place) for place in places}
        return [TopicPartition(*place, max(low, high - start.last)) for place, (low, high) in bounds.items()]
    return [TopicPartition(*place, start.offset) for place in places]


def offsets_at(consumer: Consumer, places: Sequence[Place], time_ms: int) -> list[TopicPartition]:
    """The first record of each partition that is not older; OFFSET_END where all are."""
    asked = [TopicPartition(*place, time_ms) for place in places]
    found = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S) if asked else []
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return found


def ends(consumer: Consumer, places: Sequence[Place], end: End) -> dict[Place, int]:
    """The offset to end before, of each partition."""
    if end.offset is not None and not end.at_present:
        return dict.fromkeys(places, end.offset)
    highest = {place: watermarks(consumer, place)[1] for place in places}
    if end.offset is not None:
        return {place: min(end.offset, high) for place, high in highest.items()}
    if end.time_ms is None:
        return highest
    found = {(each.topic, each.partition): each.offset for each in offsets_at(consumer, places, end.time_ms)}
    return {place: high if found[place] < 0 else found[place] for place, high in highest.items()}


def watermarks(consumer: Consumer, place: Place) -> tuple[int, int]:
    """The first offset of a partition, and the one that the next record gets."""
    found = consumer.get_watermark_offsets(TopicPartition(*place), timeout=REQUEST_TIMEOUT_S)
    if found is None:
        raise ToolError(f"partition {place[1]} of topic {place[0]!r} has no leader that answers")
    low, high = found
    return low, high


class Reading:
    """Reading of some partitions, each until its end. The consumer must tell of ends (`enable.partition.eof`)."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: dict[Place, int] = {}
        self._open: set[Place] = set()
        """Partitions with an end that have not been read until it."""
        self.places: set[Place] = set()

    def begin(self, starts: Sequence[TopicPartition], before: Mapping[Place, int] | None = None) -> None:
        """Read these partitions more; `before`: their ends."""
        self.places |= {(each.topic, each.partition) for each in starts}
        unfinished = [each for each in starts if before is None or each.offset < before[each.topic, each.partition]]
        if before is not None:
            self._ends.update(before)
            self._open |= {(each.topic, each.partition) for each in unfinished if self._has_records(each, before)}
            unfinished = [each for each in unfinished if (each.topic, each.partition) in self._open]
        if unfinished:
            self._consumer.incremental_assign(unfinished)

    @staticmethod
    def _has_records(start: TopicPartition, before: Mapping[Place, int]) -> bool:
        return start.offset != OFFSET_END and before[start.topic, start.partition] > 0

    @property
    def unfinished(self) -> set[Place]:
        """Partitions from which records are still to come, of those that have an end."""
        return set(self._open)

    @property
    def is_done(self) -> bool:
        """Whether each partition has been read until its end."""
        return bool(self._ends) and not self._open

    def next_batch(self, size: int = BATCH_RECORDS, wait_s: float = POLL_S) -> list[Message]:
        """The records that are there, without waiting for a full batch."""
        return [message for message in polled(self._consumer, size, wait_s) if self._is_wanted(message)]

    def _is_wanted(self, message: Message) -> bool:
        place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if not is_record(message):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._end(place)
            return False
        if place not in self._ends:
            return True
        if offset >= self._ends[place] - 1:
            self._end(place)
        return offset < self._ends[place]

    def _end(self, place: Place) -> None:
        if place in self._open:
            self._open.discard(place)
            self._consumer.incremental_unassign([TopicPartition(*place)])


def close(consumer: Consumer) -> None:
    """Leave the group and close. Where the coordinator is gone, librdkafka waits for it as long as it likes: a thread
    does that, and the process ends without it."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_TIMEOUT_S)


def polled(consumer: Consumer, size: int, wait_s: float) -> list[Message]:
    """Messages of a consumer, events among them, as soon as there is one."""
    first = consumer.poll(wait_s)
    if first is None:
        return []
    rest = consumer.consume(size - 1, timeout=0) if size > 1 else []
    return [first, *rest]


def no_such_offset(topic: str, partition: int) -> ToolError:
    return ToolError(f"partition {partition} of topic {topic!r} has no such offset: try --offset earliest")


def is_record(message: Message) -> bool:
    """Whether it is a record, and no event; raises what nothing can be done about."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._PARTITION_EOF:
        return False
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise no_such_offset(message.topic() or "", message.partition() or 0)
    if error.fatal() or not (error.retriable() or error.code() in _PASSING_ERRORS):
        raise KafkaException(error)
    sys.stderr.write(f"warning: {describe(error)}; trying again\n")
    return False
