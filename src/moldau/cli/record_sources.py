"""Sources of `moldau consume`: exact places of partitions, or the shares of a consumer group."""

import argparse
import time
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from moldau.cli.failures import ToolError
from moldau.cli.metadata import partitions_of
from moldau.cli.reading import (
    End,
    Place,
    Reading,
    Start,
    ends,
    is_record,
    matching_topics,
    no_such_offset,
    places_of,
    polled,
    positions,
    watermarks,
)

LOOKED_EVERY_S = 5.0
"""Time after which new topics and partitions are looked for again."""


class Source(Protocol):
    """Source of records."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes."""

    def next_batch(self, size: int, wait_s: float) -> list[Message]:
        """Records that are there."""

    def printed(self, batch: Sequence[Message]) -> None:
        """Take note that records have been printed."""


class ExactSource:
    """Partitions from a place on, without a group."""

    def __init__(self, consumer: Consumer, options: argparse.Namespace) -> None:
        self._consumer = consumer
        self._options = options
        self._reading = Reading(consumer)
        self._looked_s = time.monotonic()
        self._commits = options.group is not None
        first = OFFSET_BEGINNING if options.from_beginning else Start().offset
        start = Start(first if options.offset is None else options.offset, options.from_time, options.tail)
        self._end = End(options.until_offset, options.until_time, options.no_follow)
        self._awaits_ms = options.until_time if self._is_ahead(options.until_time) and not options.no_follow else None
        places = self._places()
        if not places:
            raise ToolError(f"no topic matches {options.include!r}")
        self._begin(places, start)

    @staticmethod
    def _is_ahead(moment_ms: int | None) -> bool:
        return moment_ms is not None and moment_ms > time.time() * 1000

    def _places(self) -> list[Place]:
        only = None if self._options.partition is None else [self._options.partition]
        topics = [self._options.topic]
        if self._options.include is not None:
            topics = matching_topics(self._consumer, self._options.include)
        return places_of(self._consumer, topics, only)

    def _begin(self, places: Sequence[Place], start: Start) -> None:
        is_bounded = self._end.is_given and self._awaits_ms is None
        before = ends(self._consumer, places, self._end) if is_bounded else None
        if is_bounded and start.offset >= 0 and start.offset > watermarks(self._consumer, places[0])[1]:
            raise no_such_offset(*places[0])  # as librdkafka says of a reading without an end
        self._reading.begin(positions(self._consumer, places, start), before)

    @property
    def is_done(self) -> bool:
        if self._awaits_ms is not None:
            return not self._is_ahead(self._awaits_ms)
        return self._reading.is_done

    def next_batch(self, size: int, wait_s: float) -> list[Message]:
        self._look_for_more()
        batch = self._reading.next_batch(size, wait_s)
        if self._awaits_ms is None:
            return batch
        return [message for message in batch if message.timestamp()[1] < self._awaits_ms]

    def _look_for_more(self) -> None:
        """Read partitions that are new from their first record on."""
        is_following = not self._end.is_given and self._options.partition is None
        if not is_following or time.monotonic() - self._looked_s < LOOKED_EVERY_S:
            return
        self._looked_s = time.monotonic()
        try:
            new = [place for place in self._places() if place not in self._reading.places]
        except ToolError:  # deleted while it is read: librdkafka says so, or it comes back
            return
        if new:
            self._begin(new, Start(OFFSET_BEGINNING))

    def printed(self, batch: Sequence[Message]) -> None:
        if self._commits:  # by name: a partition that is read to its end is not assigned any more
            places = {(message.topic() or "", message.partition() or 0): message for message in batch}
            offsets = [TopicPartition(*place, (message.offset() or 0) + 1) for place, message in places.items()]
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=True)


class GroupSource:
    """Partitions that a consumer group gives this member."""

    def __init__(self, consumer: Consumer, options: argparse.Namespace) -> None:
        self._consumer = consumer
        self._options = options
        self._stops_at_ends = options.no_follow
        self._ended: set[Place] = set()
        self._looked_s = time.monotonic()
        self._topics = self._wanted()
        if not self._topics:
            raise ToolError(f"no topic matches {options.include!r}")
        consumer.subscribe(self._topics)

    def _wanted(self) -> list[str]:
        if self._options.include is not None:
            return matching_topics(self._consumer, self._options.include)
        partitions_of(self._consumer, self._options.topic)
        return [self._options.topic]

    @property
    def is_done(self) -> bool:
        if not self._stops_at_ends:
            return False
        owned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        return bool(owned) and owned <= self._ended

    def next_batch(self, size: int, wait_s: float) -> list[Message]:
        if self._options.include is not None and time.monotonic() - self._looked_s > LOOKED_EVERY_S:
            self._looked_s = time.monotonic()
            self._subscribe_anew()
        return [message for message in polled(self._consumer, size, wait_s) if self._is_wanted(message)]

    def _subscribe_anew(self) -> None:
        topics = self._wanted()
        if topics and topics != self._topics:
            self._topics = topics
            self._consumer.subscribe(topics)

    def _is_wanted(self, message: Message) -> bool:
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(place)
            return False
        return is_record(message)

    def printed(self, batch: Sequence[Message]) -> None:
        store(self._consumer, batch)


def store(consumer: Consumer, batch: Sequence[Message]) -> None:
    """Let the next commit of a consumer name these records as read."""
    last = {(message.topic() or "", message.partition() or 0): message for message in batch}
    owned = {(each.topic, each.partition) for each in consumer.assignment()}
    offsets = [TopicPartition(*place, (message.offset() or 0) + 1) for place, message in last.items() if place in owned]
    if offsets:
        consumer.store_offsets(offsets=offsets)
