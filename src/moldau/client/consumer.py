"""`Consumer`: a member of a consumer group, as an iterator of records.

    with Consumer("visits", group_id="clerks", value=JSON) as consumer:
        for record in consumer:
            handle(record)

The law: at least once. A record counts as handled when the next one is asked for, when `commit` is called, or when the
`with` block ends without an exception; only what was handled is committed. A program that dies, or a handler that
raises, gets the record again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Consumer as KafkaConsumer

from moldau.client.decoding import decoded
from moldau.client.errors import ClientError, client_error
from moldau.client.one_process import OneProcess
from moldau.client.records import Record, milliseconds, place_of
from moldau.client.seeks import Partition, Seeks
from moldau.client.serdes import BYTES, Serde
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap, asked, log, made, settings
from moldau.client.signals import stopping_on_signals

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from moldau.client.handling import Handled, Handler
    from moldau.client.transactions import Transactional

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

OnPartitions = Callable[[list[Partition]], None]

POLL_S = 0.2
"""The longest wait inside of librdkafka: so late a stop or Ctrl-C may be heard."""
COMMIT_INTERVAL_S = 5.0
BATCH_RECORDS = 500
PASSING = frozenset(
    (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
)
"""Errors after which librdkafka goes on by itself."""
NAMED_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


class Consumer(Generic[K, V]):
    """Reads topics as a member of the group `group_id`. One thread at a time may use it; `stop` may be called from any.

    `topics`: names, or regular expressions that begin with `^`. `key`, `value`: serdes (bytes). `auto_offset_reset`:
    where a group begins that has no offset. `auto_commit`: commit what was handled every `commit_interval_s`, when
    partitions go to another member, and at the end. `properties` are librdkafka's and go before all else.
    """

    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap: Bootstrap | None = None,
        key: Serde[K] = BYTES,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = BYTES,  # type: ignore[assignment]  # the same
        auto_offset_reset: Literal["earliest", "latest", "error"] = "earliest",
        auto_commit: bool = True,
        commit_interval_s: float = COMMIT_INTERVAL_S,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        if not topics:
            raise ValueError("name a topic: Consumer('visits', group_id='clerks')")
        if not all(isinstance(each, str) for each in topics):
            raise TypeError("topics are named one by one: Consumer('visits', 'orders', group_id='clerks')")
        self.group_id = group_id
        self.auto_commit = auto_commit
        self.key_serde = key
        self.value_serde = value
        self.bootstrap = bootstrap
        self.properties = dict(properties or {})
        chosen = {
            "group.id": group_id,
            "auto.offset.reset": auto_offset_reset,
            "enable.auto.commit": auto_commit,
            "auto.commit.interval.ms": int(commit_interval_s * 1000),
            "enable.auto.offset.store": False,  # what counts is what was handled, not what was fetched
        }
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._stopped = threading.Event()
        self._is_closed = False
        self._warned = ""
        self._ahead: deque[Message] = deque()
        """Messages that came while something else was awaited."""
        self._at_hand: dict[Partition, int] = {}
        """The next offsets after the records that the program has in its hands."""
        self._handled: dict[Partition, int] = {}
        """The next offsets after handled records that `commit` has not committed."""
        self._first_open: dict[Partition, int] = {}
        """The first offsets that were handed out since the last commit."""
        always = {"error_cb": self._on_error, "enable.partition.eof": True}  # the latter for `_seeks`
        self._kafka = made(KafkaConsumer, {**settings(bootstrap, chosen, properties), **always})
        self._process = OneProcess(self._kafka, "consumer")
        self._seeks = Seeks(self._go_to)
        asked(
            lambda: self._kafka.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked),
            f"topics {', '.join(topics)}",
        )

    # --- reading ---

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self.records()

    def records(self, limit: int | None = None, idle_s: float | None = None) -> Iterator[Record[K, V]]:
        """Records as they come, until `stop`; no more than `limit`, and only until none has come for `idle_s`
        seconds. Raises SerdeError for a record that cannot be read: who goes on after it has passed it over."""
        left = limit
        while left is None or left > 0:
            message = self.next_message(idle_s)
            if message is None:
                return
            yield self.decoded(message)
            self.mark_handled()
            left = None if left is None else left - 1

    def poll(self, timeout_s: float = 1.0) -> Record[K, V] | None:
        """The next record; None if none comes in time."""
        message = self.next_message(timeout_s)
        return None if message is None else self.decoded(message)

    def batch(self, limit: int = BATCH_RECORDS, timeout_s: float = 1.0) -> list[Record[K, V]]:
        """Records that are there, at least one if one comes in time. They count as handled together."""
        return [self.decoded(message) for message in self.next_messages(limit, timeout_s)]

    def next_message(self, timeout_s: float | None = None) -> Message | None:
        """The next message, not decoded; None after `timeout_s` or `stop`. The one before counts as handled."""
        messages = self.next_messages(1, timeout_s)
        return messages[0] if messages else None

    def next_messages(self, limit: int, timeout_s: float | None = None) -> list[Message]:
        """Messages that are there, at least one if one comes in time. Those before count as handled."""
        self.mark_handled()
        found = self.fetch_ahead(limit, timeout_s)
        for message in found:
            self.hand_out(message)
        return found

    def fetch_ahead(self, limit: int, timeout_s: float | None = None) -> list[Message]:
        """Messages that are there, at least one if one comes in time; `hand_out` is called for each when the program
        gets it."""
        self._check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._stopped.is_set():
            left_s = POLL_S if deadline is None else max(0.0, min(POLL_S, deadline - time.monotonic()))
            found = self._fetched(limit, left_s)
            if found:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                break
        return []

    def decoded(self, message: Message) -> Record[K, V]:
        return decoded(message, self.key_serde, self.value_serde)

    def _fetched(self, limit: int, timeout_s: float) -> list[Message]:
        found = [self._ahead.popleft() for _ in range(min(limit, len(self._ahead)))]
        if found:
            return found
        first = self._polled(timeout_s)
        if first is None:
            return []
        # One by one while a position is waited for: behind the first there may be more from the old one.
        rest = self._kafka.consume(limit - 1, timeout=0) if limit > 1 and not self._seeks.are_waiting else []
        return [first, *(each for each in rest if self._is_record(each))]

    def _polled(self, timeout_s: float) -> Message | None:
        message = self._kafka.poll(timeout_s)
        while message is not None and not self._is_record(message):
            message = self._kafka.poll(0)
        return message

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            self._warned = ""
            return self._came(message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._came(message)
            return False
        if error.fatal() or not (error.retriable() or error.code() in PASSING):
            raise client_error(error, f"group {self.group_id!r}")
        self._warn(error)
        return False

    def _came(self, message: Message) -> bool:
        """Note what a partition has sent; whether it is from the position that is wanted."""
        topic, partition = message.topic(), message.partition()
        is_record = message.error() is None
        return topic is None or partition is None or self._seeks.came((topic, partition), is_record=is_record)

    def _warn(self, error: KafkaError) -> None:
        """Log an error that passes, once until something else happens."""
        words = error.str()
        if words != self._warned:
            self._warned = words
            log.warning("consumer of group %s: %s; trying again", self.group_id, words)

    def hand_out(self, message: Message) -> None:
        """Note that the program has this message in its hands."""
        place = place_of(message)
        self._at_hand[place.topic, place.partition] = place.offset + 1
        self._first_open.setdefault((place.topic, place.partition), place.offset)

    # --- what was handled ---

    def mark_handled(self) -> None:
        """Count the records at hand as handled; they are committed with the next commit."""
        if not self._at_hand:
            return
        self._handled.update(self._at_hand)
        for (topic, partition), offset in self._at_hand.items():
            if self.auto_commit:
                self._store(TopicPartition(topic, partition, offset))
        self._at_hand.clear()

    def _store(self, place: TopicPartition) -> None:
        try:
            self._kafka.store_offsets(offsets=[place])
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # the partition is another member's by now
                raise client_error(error.args[0], f"offset of {place.topic}-{place.partition}") from error

    def commit(self) -> None:
        """Commit all records that were handed out, that at hand too, and wait for it. Raises ClientError."""
        self._check()
        self.mark_handled()
        places = self._places(self._handled)
        if places:
            done = asked(
                lambda: self._kafka.commit(offsets=places, asynchronous=False), f"commit of group {self.group_id!r}"
            )
            for place in done or []:
                if place.error is not None:
                    raise client_error(place.error, f"commit of {place.topic}-{place.partition}")
        self._committed()

    def committed(self) -> dict[Partition, int]:
        """Committed offsets of the partitions that this member has; without those that have none."""
        places = self._asked_of_assigned(lambda mine: self._kafka.committed(mine, REQUEST_TIMEOUT_S))
        return {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}

    def give_offsets_to(self, transactional: "Transactional") -> None:
        """Make the offsets of all records that were handed out a part of a transaction."""
        self.mark_handled()
        if self._handled:
            transactional.send_offsets(self._places(self._handled), self._kafka.consumer_group_metadata())
        self._committed()

    def give_back(self, message: Message) -> None:
        """Count a message that was handed out as not handled: it is the next again, here or at another member."""
        place = place_of(message)
        self._at_hand.pop((place.topic, place.partition), None)
        if (place.topic, place.partition) in self.assignment:
            self.seek(*place)

    def rewind_to_handled(self) -> None:
        """Go back to the first record that was handed out since the last commit."""
        self._at_hand.clear()
        self._handled.clear()
        first = dict(self._first_open)
        self._first_open.clear()
        mine = set(self.assignment)
        for (topic, partition), offset in first.items():
            if (topic, partition) in mine:
                self.seek(topic, partition, offset)

    def _committed(self) -> None:
        self._handled.clear()
        self._first_open.clear()

    @staticmethod
    def _places(offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]

    # --- partitions and positions ---

    @property
    def assignment(self) -> list[Partition]:
        """Partitions of this member."""
        self._check()
        return sorted((each.topic, each.partition) for each in self._kafka.assignment())

    def wait_for_assignment(self, timeout_s: float = REQUEST_TIMEOUT_S) -> list[Partition]:
        """Partitions of this member, as soon as it has some. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self.assignment:
            if time.monotonic() > deadline:
                raise TimeoutError(f"group {self.group_id!r} gave this member no partition in {timeout_s:g} s")
            self._keep(self._polled(POLL_S))
        return self.assignment

    def position(self, topic: str, partition: int) -> int | None:
        """The offset that comes next to the program; None before the first record."""
        for message in self._ahead:
            if (message.topic(), message.partition()) == (topic, partition):
                return message.offset()
        [place] = self._kafka.position([TopicPartition(topic, partition)])
        return place.offset if place.offset >= 0 else None

    def lag(self) -> dict[Partition, int]:
        """Records between this member's position and the end, for each partition that it has read from."""
        found = {}
        for topic, partition in self.assignment:
            position = self.position(topic, partition)
            if position is not None:
                place = TopicPartition(topic, partition)
                ends = asked(lambda place=place: self._kafka.get_watermark_offsets(place, REQUEST_TIMEOUT_S), "ends")  # type: ignore[misc]  # mypy infers no lambda with a default
                found[topic, partition] = max(0, ends[1] - position)
        return found

    def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        """Go to an offset of a partition that this member has."""
        self._seek(TopicPartition(topic, partition, NAMED_OFFSETS.get(cast(str, offset), cast(int, offset))))

    def seek_to_beginning(self) -> None:
        """Go to the oldest record of every partition that this member has."""
        self.wait_for_assignment()
        for topic, partition in self.assignment:
            self.seek(topic, partition, "earliest")

    def seek_to_time(self, when: datetime | float) -> None:
        """Go to the first record of this time or later (milliseconds, or a datetime), in every partition of this
        member; to the end where there is none."""
        self.wait_for_assignment()
        when_ms = milliseconds(when)
        found = self._asked_of_assigned(
            lambda mine: self._kafka.offsets_for_times(
                [TopicPartition(each.topic, each.partition, when_ms) for each in mine], REQUEST_TIMEOUT_S
            )
        )
        for place in found:
            self._seek(place)

    def pause(self, *partitions: Partition) -> None:
        """Get no more records of these partitions (of all), and stay a member."""
        chosen = partitions or tuple(self.assignment)
        self._kafka.pause([TopicPartition(*each) for each in chosen])
        self._drop_ahead(set(chosen), keep=True)

    def resume(self, *partitions: Partition) -> None:
        """Get records of these partitions (of all) again."""
        self._kafka.resume([TopicPartition(*each) for each in partitions or tuple(self.assignment)])

    def _seek(self, place: TopicPartition) -> None:
        partition = (place.topic, place.partition)
        self._seeks.seek(place, is_assigned=partition in self.assignment)
        self._drop_ahead({partition})
        for offsets in (self._at_hand, self._handled, self._first_open):
            offsets.pop(partition, None)

    def _go_to(self, place: TopicPartition) -> None:
        asked(lambda: self._kafka.seek(place), f"seek in {place.topic}-{place.partition}")

    def _drop_ahead(self, partitions: set[Partition], keep: bool = False) -> None:
        """Forget messages of these partitions that were not handed out; with `keep` librdkafka reads them again."""
        gone = [each for each in self._ahead if (each.topic(), each.partition()) in partitions]
        self._ahead = deque(each for each in self._ahead if (each.topic(), each.partition()) not in partitions)
        if keep:
            first = {(each.topic(), each.partition()): each for each in reversed(gone)}
            for message in first.values():
                self._kafka.seek(TopicPartition(*place_of(message)))

    def _keep(self, message: Message | None) -> None:
        if message is not None:
            self._ahead.append(message)

    def _asked_of_assigned(self, call: Callable[[list[TopicPartition]], list[TopicPartition]]) -> list[TopicPartition]:
        mine = [TopicPartition(*each) for each in self.assignment]
        places = asked(lambda: call(mine), f"offsets of group {self.group_id!r}") if mine else []
        for place in places:
            if place.error is not None:
                raise client_error(place.error, f"offset of {place.topic}-{place.partition}")
        return places

    def _assigned(self, _kafka: KafkaConsumer, partitions: Sequence[TopicPartition]) -> None:
        new = [(each.topic, each.partition) for each in partitions]
        self._seeks.assigned(new, [(each.topic, each.partition) for each in self._kafka.assignment()])
        if self._on_assign is not None:
            self._on_assign(new)

    def _revoked(self, _kafka: KafkaConsumer, partitions: Sequence[TopicPartition]) -> None:
        gone = [(each.topic, each.partition) for each in partitions]
        if self._on_revoke is not None:
            self._on_revoke(gone)
        self._seeks.revoked(gone)
        self._drop_ahead(set(gone))
        for partition in gone:
            for offsets in (self._at_hand, self._handled, self._first_open):
                offsets.pop(partition, None)

    def _on_error(self, error: KafkaError) -> None:
        """Log what librdkafka mends by itself; an error that is fatal comes back from the next poll."""
        self._warn(error)

    # --- the loop, and the end ---

    def run(
        self,
        handler: "Handler[K, V]",
        *,
        retries: int = 3,
        backoff_s: float = 0.1,
        dead_letters: str | None = None,
        permanent: tuple[type[Exception], ...] = (),
        on_signals: bool = True,
        limit: int | None = None,
        idle_s: float | None = None,
    ) -> "Handled":
        """Call `handler` with each record, until `stop`, SIGTERM or Ctrl-C; returns counts. What it raises is tried
        again `retries` times, with a pause that doubles; after that, and at once for what is in `permanent` and for a
        record that cannot be read, the record goes to the topic `dead_letters`, or without one the error is raised."""
        from moldau.client.handling import Handling

        return Handling(self, handler, retries, backoff_s, dead_letters, permanent).run(on_signals, limit, idle_s)

    def stop(self) -> None:
        """End iteration after the record at hand. May be called from any thread, and from a signal handler."""
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def wait_for_stop(self, timeout_s: float) -> bool:
        """Whether `stop` was called, after a wait of at most so long."""
        return self._stopped.wait(timeout_s)

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C end iteration after the record at hand; a second signal acts as it would without."""
        with stopping_on_signals(self.stop):
            yield

    def close(self) -> None:
        """Commit what was handled, that at hand too, and leave the group."""
        self._close(is_handled=True)

    def _close(self, is_handled: bool) -> None:
        if self._is_closed or self._process.is_forked:
            return
        if is_handled:
            self.mark_handled()
        self._is_closed = True
        self._kafka.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(is_handled=kind is None)

    def _check(self) -> None:
        if self._is_closed:
            raise ClientError("the consumer is closed")
        self._process.check()
