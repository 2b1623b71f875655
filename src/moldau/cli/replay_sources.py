"""Sources of `moldau replay`: partitions of a topic, in the order of time where that is asked for, or a file."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from moldau.cli.failures import ToolError
from moldau.cli.payloads import BadPayload
from moldau.cli.reading import BATCH_RECORDS, Place, Reading
from moldau.cli.record_json import InputRecord, Origin, headers_of, read_line

BUFFERED_MAX = 2000
"""Records of a partition that wait for the others' earlier ones, before it is paused."""
LINES_BYTES = 1 << 18
STARVED_S = 1.0
"""Time for which a partition without records is waited for, when others have some."""


class Item(NamedTuple):
    """A record, where it came from, and the position after it."""

    record: InputRecord
    origin: Origin | None
    place: Place
    next: int


def item_of(message: Message) -> Item:
    """The item of a record that was read."""
    kind, timestamp_ms = message.timestamp()
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    timestamp = timestamp_ms if kind else None
    try:
        headers = headers_of(message)
    except BadPayload as error:
        raise ToolError(f"{topic}-{partition} offset {offset}: {error}") from error
    record = InputRecord(message.key(), message.value(), list(headers), timestamp, partition)
    return Item(record, Origin(topic, partition, offset, timestamp), (topic, partition), offset + 1)


def from_topic(reading: Reading) -> Iterator[list[Item]]:
    """Records as they come; an empty list where none has come for a moment."""
    while not reading.is_done:
        yield [item_of(message) for message in reading.next_batch(BATCH_RECORDS)]


class InTimeOrder:
    """Records of several partitions in the order of their timestamps; inside of a partition their order is kept."""

    def __init__(self, consumer: Consumer, reading: Reading) -> None:
        self._consumer = consumer
        self._reading = reading
        self._waiting: dict[Place, deque[Item]] = {place: deque() for place in reading.places}
        self._paused: set[Place] = set()
        self._news_s = time.monotonic()

    def batches(self) -> Iterator[list[Item]]:
        """Records that are known to come next; an empty list where none has come for a moment."""
        while not self._reading.is_done:
            for message in self._reading.next_batch(BATCH_RECORDS):
                item = item_of(message)
                self._waiting[item.place].append(item)
                self._news_s = time.monotonic()
            yield self._ready()
            self._brake()
        yield self._ready(may_lack=True)

    def _ready(self, may_lack: bool = False) -> list[Item]:
        is_starved = time.monotonic() - self._news_s > STARVED_S
        found: list[Item] = []
        awaited = self._reading.unfinished or (set() if self._reading.is_done else self._reading.places)
        while any(self._waiting.values()):
            lacking = any(not self._waiting[place] for place in awaited - self._paused)
            if lacking and not (is_starved or may_lack):
                break
            first = min((queue for queue in self._waiting.values() if queue), key=lambda queue: _time(queue[0]))
            found.append(first.popleft())
        return found

    def _brake(self) -> None:
        """Pause partitions of which much waits; let the others go on."""
        full = {place for place, queue in self._waiting.items() if len(queue) > BUFFERED_MAX}
        owned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        stop, go = (full - self._paused) & owned, (self._paused - full) & owned
        if stop:
            self._consumer.pause([TopicPartition(*place) for place in stop])
        if go:
            self._consumer.resume([TopicPartition(*place) for place in go])
        self._paused = full & owned


def _time(item: Item) -> int:
    return item.record.timestamp_ms or 0


def from_file(path: str, begin: int) -> Iterator[list[Item]]:
    """Records of a file's lines, from a byte on."""
    place = file_place(path)
    at = begin
    try:
        with Path(path).open("rb") as file:
            file.seek(begin)
            while lines := file.readlines(LINES_BYTES):
                items = []
                for line in lines:
                    at += len(line)
                    items.append(_item_of_line(path, place, line, at))
                yield items
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error


def _item_of_line(path: str, place: Place, line: bytes, after: int) -> Item:
    try:
        record, origin = read_line(line)
    except BadPayload as error:
        raise ToolError(f"{path}, byte {after - len(line)}: {error}") from error
    return Item(record, origin, place, after)


def file_place(path: str) -> Place:
    """The name under which a file's position is kept."""
    return str(Path(path).resolve()), 0


def check_kept(saved: dict[Place, int], lows: dict[Place, int], where: str) -> None:
    """Refuse to go on where retention has taken records that have not been sent."""
    for place, next_ in sorted(saved.items()):
        if next_ < lows.get(place, 0):
            lost = f"records {next_} to {lows[place] - 1} of {place[0]}-{place[1]} are no longer there"
            raise ToolError(f"{lost}: to begin anew without them, remove {where}")


def partitions_in(places: Sequence[Place]) -> int:
    """The number of partitions that a target needs to keep the places of the source."""
    return max((number for _, number in places), default=-1) + 1
