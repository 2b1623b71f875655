"""Dead letters: records that somebody could not handle, with headers that say whence and why; and sending them back.

The law of redriving is that of `moldau pipeline redrive`, which works on the same group: a position in each partition
of the dead-letter topic, committed for the group `NAME.redrive`, is where the letters begin that were not sent back
yet. A letter that is passed over is written again to the end of the topic. Here the letters that go back, those that
are written again and the position are one transaction, and whoever begins to redrive a topic fences whoever did before:
no letter goes back twice, whenever the console is killed. Consumers that read uncommitted records may see a letter of a
transaction that was aborted. Where pipelines share a topic for their letters each may have a group; the position that
is farthest counts.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from moldau.client.message_headers import read_headers
from moldau.console.cluster.clients import REQUEST_S, Clients
from moldau.console.cluster.offset_specs import EARLIEST, LATEST, offsets_at
from moldau.console.failures import ConsoleError
from moldau.console.web.words import visible

MOLDAU = "moldau.dlq."
CONNECT = "__connect.errors."
SPRING = "kafka_dlt-"
PREFIXES = (MOLDAU, CONNECT, SPRING)
ATTEMPTS = MOLDAU + "attempts"
PASSED_OVER_MAX = 5000
"""Letters that one redrive writes again to the end, at most."""
BATCH = 100
READ_MAX = 5000
"""Letters that a page reads."""
LOOK_S = 5.0
POLL_S = 0.2
READ_S = 0.02
NEWEST = 10
"""Offsets in which a topic's newest letter is looked for: behind it may be marks of transactions."""
REASON_MAX = 500
REDRIVE_S_MAX = 600.0
"""Time after which a redrive ends, and says so: somebody waits for its page."""
SUFFIX = ".redrive"
_FIELDS = {
    MOLDAU: ("topic", "partition", "offset", "reason"),
    CONNECT: ("topic", "partition", "offset", "exception.message"),
    SPRING: ("original-topic", "original-partition", "original-offset", "exception-message"),
}


class Letter(NamedTuple):
    """A dead letter, and the place of its record in the dead-letter topic."""

    partition: int
    offset: int
    timestamp_ms: int
    family: str
    """The prefix of its headers."""
    topic: str
    origin: str
    """The record that it was: topic, partition and offset."""
    origin_partition: int | None
    reason: str
    owner: str
    """The pipeline that wrote it; empty for other families."""
    attempts: int


def letter_of(message: Message) -> Letter | None:
    """The letter in a record; None if its headers do not say that it is one."""
    headers = read_headers(message) or []
    said = {name: _text(value) for name, value in headers}
    for prefix, names in _FIELDS.items():
        topic, partition, offset, reason = (said.get(prefix + name, "") for name in names)
        if topic:
            attempts = said.get(ATTEMPTS, "0")
            _, timestamp = message.timestamp()
            return Letter(
                message.partition() or 0,
                message.offset() or 0,
                timestamp,
                prefix,
                topic,
                f"{topic}-{partition} offset {offset}" if partition else topic,
                int(partition) if partition.isdecimal() else None,
                _reason(reason),
                said.get(MOLDAU + "pipeline", ""),
                int(attempts) if attempts.isdecimal() else 0,
            )
    return None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        # Spring writes numbers as bytes
        if len(value) in (4, 8) and value[:1] == b"\0":
            return str(int.from_bytes(value, "big"))
        return value.decode(errors="replace")
    return str(value or "")


def _reason(words: str) -> str:
    """A reason in one line that a form brings back as it is: browsers change the ends of lines."""
    return visible(" ".join(words[: 2 * REASON_MAX].split()))[:REASON_MAX] or "no reason was given"


def group_of(topic: str, owner: str) -> str:
    """The group whose position says what was sent back."""
    return f"{owner or topic}{SUFFIX}"


# --- looking


@dataclass(slots=True)
class Pile:
    """Letters of a topic that were not sent back yet."""

    letters: list[Letter] = field(default_factory=list)
    owner: str = ""
    is_whole: bool = True
    """Whether all were read."""

    @property
    def reasons(self) -> Counter[str]:
        return Counter(each.reason for each in self.letters)


def newest_is_letter(clients: Clients, topics: Mapping[str, Mapping[int, int]]) -> dict[str, bool]:
    """Whether one of the newest records of each topic is a dead letter; `topics` are the ends by partition."""
    consumer = clients.reader(**{"isolation.level": "read_uncommitted"})
    try:
        places = [
            TopicPartition(topic, partition, max(0, end - NEWEST))
            for topic, ends in topics.items()
            for partition, end in ends.items()
        ]
        consumer.assign(places)
        found: dict[str, bool] = {}
        waiting = {(place.topic, place.partition) for place in places}
        deadline = time.monotonic() + LOOK_S
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(BATCH, READ_S):
                topic, partition = message.topic() or "", message.partition() or 0
                is_over = message.error() is not None or (message.offset() or 0) + 1 >= topics[topic][partition]
                if is_over:
                    waiting.discard((topic, partition))
                is_letter = message.error() is None and letter_of(message) is not None
                found[topic] = found.get(topic, False) or is_letter
        unread = {topic for topic, _ in waiting}
        return {topic: is_letter for topic, is_letter in found.items() if is_letter or topic not in unread}
    finally:
        consumer.close()


def pile(clients: Clients, topic: str, partitions: int, others: Sequence[str] = ()) -> Pile:
    """Letters that wait in a topic; `others` are groups that may have redriven some."""
    found = Pile(owner=_owner(clients, topic, partitions))
    consumer = clients.reader(**{"group.id": group_of(topic, found.owner), "isolation.level": "read_committed"})
    try:
        begins = _positions(clients, consumer, topic, range(partitions), others)
        for message in _until(consumer, topic, begins, _ends(clients, topic, range(partitions))):
            letter = letter_of(message)
            if letter is not None:
                found.letters.append(letter)
            if len(found.letters) >= READ_MAX:
                found.is_whole = False
                break
        found.letters.sort()
        return found
    finally:
        consumer.close()


def _owner(clients: Clients, topic: str, partitions: int) -> str:
    """The pipeline that the newest letters name."""
    consumer = clients.reader(**{"isolation.level": "read_committed"})
    starts, ends = _starts(clients, topic, range(partitions)), _ends(clients, topic, range(partitions))
    begins = {number: max(starts[number], end - NEWEST) for number, end in ends.items()}
    try:
        letters = (letter_of(message) for message in _until(consumer, topic, begins, ends))
        return next((letter.owner for letter in letters if letter is not None), "")
    finally:
        consumer.close()


def _starts(clients: Clients, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    places = [(topic, number) for number in partitions]
    return {number: at for (_, number), at in offsets_at(clients.admin, places, EARLIEST, REQUEST_S).items()}


def _ends(clients: Clients, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Ends of committed records."""
    places = [(topic, number) for number in partitions]
    found = offsets_at(clients.admin, places, LATEST, REQUEST_S, is_committed=True)
    return {number: at for (_, number), at in found.items()}


def _positions(
    clients: Clients, consumer: Consumer, topic: str, partitions: Iterable[int], others: Sequence[str]
) -> dict[int, int]:
    """Offsets at which the letters begin that were not sent back: the farthest of the consumer's group and others."""
    found = _starts(clients, topic, partitions)
    places = [TopicPartition(topic, number) for number in found]
    for place in _committed(consumer, places):
        found[place.partition] = max(found[place.partition], place.offset)
    for group in others:
        other = clients.reader(**{"group.id": group})
        try:
            for place in _committed(other, places):
                found[place.partition] = max(found[place.partition], place.offset)
        finally:
            other.close()
    return found


def _committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    committed = consumer.committed(places, timeout=REQUEST_S)
    for place in committed:
        if place.error is not None:
            raise KafkaException(place.error)
    return committed


def _until(consumer: Consumer, topic: str, begins: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Message]:
    """Records of some partitions, from an offset to an end of each; all of them at once, as going from one to the next
    takes longer than reading what is there."""
    left = {number for number, begin in begins.items() if begin < ends[number]}
    if not left:
        return
    consumer.assign([TopicPartition(topic, number, begins[number]) for number in sorted(left)])
    deadline = time.monotonic() + REQUEST_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(BATCH, READ_S):
            error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if number not in left:
                continue
            if error is not None or offset + 1 >= ends[number]:
                left.discard(number)
            if error is None and offset < ends[number]:
                yield message
                deadline = time.monotonic() + REQUEST_S


# --- sending back


@dataclass(slots=True)
class Outcome:
    """Progress of a redrive."""

    sent: int = 0
    kept: int = 0
    """Letters that were passed over, and are at the end of the topic now."""
    stuck: int = 0
    """Letters among these whose topic is not there: those of a file, or of a topic that was deleted."""
    foreign: int = 0
    """Records that are no letters, or whose headers cannot be read: they stay where they are."""
    is_whole: bool = True
    """Whether it came to the end in time."""


def redrive(
    clients: Clients,
    topic: str,
    partitions: int,
    takes: Callable[[Letter], bool],
    known: Collection[str],
    per_s: float | None = None,
    only_to: Mapping[int, int] | None = None,
    others: Sequence[str] = (),
) -> Outcome:
    """Send back the letters that `takes` names, up to the end of now; of other partitions nothing is touched.

    `known` are the topics that letters can go to, `only_to` the partitions that are looked at, and the offsets before
    which it ends there, `others` groups that may have redriven some.
    """
    owner = _owner(clients, topic, partitions)
    producer = clients.transactional_producer(f"moldau.console.redrive.{topic}")
    producer.init_transactions(REQUEST_S)
    # the position is read after whoever redrove before was fenced: none of his transactions can end any more
    consumer = clients.reader(**{"group.id": group_of(topic, owner), "isolation.level": "read_committed"})
    work = _Redrive(topic, consumer, producer, takes, known, per_s)
    try:
        chosen = list(range(partitions) if only_to is None else only_to)
        begins = _positions(clients, consumer, topic, chosen, others)
        # all ends are asked for first: what is passed over in one partition may be written to the next
        ends = _ends(clients, topic, chosen)
        for number in chosen:
            end = ends[number] if only_to is None else min(ends[number], only_to[number])
            if only_to is not None and begins[number] >= only_to[number]:
                raise ConsoleError("this letter was sent back already", 409)
            if only_to is not None and end - begins[number] > PASSED_OVER_MAX:
                raise ConsoleError(f"more than {PASSED_OVER_MAX} letters are before it: redrive by reason, or all", 409)
            work.partition(number, begins[number], end)
        return work.done
    finally:
        consumer.close()


class _Redrive:
    """A redrive, a transaction for each batch."""

    def __init__(
        self,
        topic: str,
        consumer: Consumer,
        producer: Producer,
        takes: Callable[[Letter], bool],
        known: Collection[str],
        per_s: float | None,
    ) -> None:
        self._topic, self._consumer, self._producer = topic, consumer, producer
        self._takes, self._known, self._per_s = takes, known, per_s
        self._batch_size = BATCH if per_s is None else max(1, min(BATCH, int(per_s)))
        self._deadline = time.monotonic() + REDRIVE_S_MAX
        self.done = Outcome()

    def partition(self, number: int, begin: int, end: int) -> None:
        batch: list[Message] = []
        for message in _until(self._consumer, self._topic, {number: begin}, {number: end}):
            if time.monotonic() > self._deadline:
                self.done.is_whole = False
                return
            batch.append(message)
            if len(batch) >= self._batch_size:
                self._send(number, batch)
                batch = []
        if batch:
            self._send(number, batch)

    def _send(self, number: int, batch: list[Message]) -> None:
        """Send a batch and move the position, both or neither."""
        begun = time.monotonic()
        outcome = Outcome()
        self._producer.begin_transaction()
        try:
            for message in batch:
                self._one(message, outcome)
            position = TopicPartition(self._topic, number, (batch[-1].offset() or 0) + 1)
            self._producer.send_offsets_to_transaction([position], self._consumer.consumer_group_metadata(), REQUEST_S)
            self._producer.commit_transaction(REQUEST_S)
        except KafkaException:
            self._producer.abort_transaction(REQUEST_S)
            raise
        for name in ("sent", "kept", "stuck", "foreign"):
            setattr(self.done, name, getattr(self.done, name) + getattr(outcome, name))
        if self._per_s is not None:
            time.sleep(max(0.0, outcome.sent / self._per_s - (time.monotonic() - begun)))

    def _one(self, message: Message, outcome: Outcome) -> None:
        """Send a letter back, or write it again to the end of its topic."""
        letter, headers = letter_of(message), read_headers(message)
        if letter is None or headers is None:
            outcome.foreign += 1
            return
        is_wanted = self._takes(letter)
        if not is_wanted or letter.topic not in self._known:
            outcome.kept += 1
            outcome.stuck += is_wanted
            self._producer.produce(self._topic, message.value(), message.key(), headers=list(headers))
            return
        outcome.sent += 1
        own = [each for each in headers if not each[0].startswith(letter.family)]
        first = [each for each in headers if each[0] == MOLDAU + "timestamp"][:1]
        marked = [*own, *first, (ATTEMPTS, str(letter.attempts + 1).encode())]
        options: dict[str, Any] = {} if letter.origin_partition is None else {"partition": letter.origin_partition}
        self._producer.produce(letter.topic, message.value(), message.key(), headers=list(marked), **options)
