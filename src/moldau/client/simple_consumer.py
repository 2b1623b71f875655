"""`SimpleConsumer`: one partition, read from an exact offset, without a group: what Kafka 0.8's simple consumer did.

    with SimpleConsumer("visits", 0, 42) as log:
        for record in log.to_end():
            ...

Nothing is committed: the program keeps its position itself, beside what it computes, if it likes. An offset that is not
in the log is an error and never a jump.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, Message, TopicPartition

from moldau.client.consumer import BATCH_RECORDS, PASSING, POLL_S
from moldau.client.decoding import decoded
from moldau.client.errors import ClientError, client_error
from moldau.client.one_process import OneProcess
from moldau.client.records import Record, milliseconds
from moldau.client.serdes import BYTES, Serde
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap, asked, log, made, settings

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Start = int | datetime | Literal["earliest", "latest"]
"""An offset, a time, or an end of the log."""

GROUP = "moldau-simple-consumer"
"""librdkafka wants a group's name; nothing is ever committed to it and nobody joins it."""


class Ends(NamedTuple):
    """Offsets of a partition: the oldest record, and the one that comes next (half-open)."""

    earliest: int
    latest: int


class SimpleConsumer(Generic[K, V]):
    """Reads one partition from an exact place. One thread at a time may use it.

    `start`: an offset, a datetime (the first record of that time or later), `earliest` or `latest`. `isolation`:
    `read_committed` leaves out records of transactions that are open or aborted.
    """

    def __init__(
        self,
        topic: str,
        partition: int = 0,
        start: Start = "earliest",
        *,
        bootstrap: Bootstrap | None = None,
        key: Serde[K] = BYTES,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = BYTES,  # type: ignore[assignment]  # the same
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.key_serde = key
        self.value_serde = value
        chosen = {
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
        self._is_closed = False
        self._settings = settings(bootstrap, chosen, properties)
        self._kafka = made(KafkaConsumer, self._settings)
        self._process = OneProcess(self._kafka, "consumer")
        try:
            self._check_partition()
            self._position = self._offset_of(start)
            self._assign()
        except BaseException:
            self._kafka.close()
            raise

    # --- reading ---

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self.records()

    def records(self, limit: int | None = None, idle_s: float | None = None) -> Iterator[Record[K, V]]:
        """Records from the position on, as they come; no more than `limit`, until none has come for `idle_s`."""
        left = limit
        while left is None or left > 0:
            found = self.fetch(1, POLL_S if idle_s is None else idle_s)
            if not found and idle_s is not None:
                return
            yield from found
            left = None if left is None else left - len(found)

    def to_end(self) -> Iterator[Record[K, V]]:
        """Records from the position up to the end that the partition has now."""
        end = self.end_ahead()
        while self._position < end:
            yield from self.fetch(BATCH_RECORDS, REQUEST_TIMEOUT_S, end)

    def fetch(self, limit: int = BATCH_RECORDS, timeout_s: float = 1.0, end: int | None = None) -> list[Record[K, V]]:
        """Records that are there, at least one if one comes in time; none of the offset `end` or later."""
        self._check()
        deadline = time.monotonic() + timeout_s
        found: list[Message] = []
        while not found and (end is None or self._position < end):
            left_s = max(0.0, min(POLL_S, deadline - time.monotonic()))
            messages = self._kafka.consume(limit, left_s) if limit == 1 else self._available(limit, left_s)
            found = [each for each in messages if self._is_record(each)]
            if not found:
                self._pass_gaps()
                if time.monotonic() >= deadline:
                    return []
        return self._taken(found, end)

    def _available(self, limit: int, timeout_s: float) -> list[Message]:
        """Messages that are there, without a wait for a full batch."""
        first = self._kafka.consume(1, timeout_s)
        return [*first, *self._kafka.consume(limit - 1, 0)] if first else []

    def _taken(self, messages: list[Message], end: int | None) -> list[Record[K, V]]:
        records = []
        for message in messages:
            offset = message.offset()
            if offset is None or (end is not None and offset >= end):
                self.seek(end if end is not None else self._position)
                break
            self._position = offset + 1
            records.append(decoded(message, self.key_serde, self.value_serde))
        return records

    def _pass_gaps(self) -> None:
        """Follow librdkafka over offsets without a record: markers of transactions, and what compaction removed."""
        [place] = self._kafka.position([self._place()])
        self._position = max(self._position, place.offset)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        where = f"{self.topic}-{self.partition} offset {self._position}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._out_of_range(self.ends())
        if error.fatal() or not (error.retriable() or error.code() in PASSING):
            raise client_error(error, where)
        log.warning("%s: %s; trying again", where, error.str())
        return False

    def _out_of_range(self, ends: Ends) -> ClientError:
        where = f"{self.topic}-{self.partition} offset {self._position}"
        words = f"{where} is not in the log, which has offsets from {ends.earliest} up to {ends.latest}"
        return ClientError(words, "OFFSET_OUT_OF_RANGE")

    # --- the position ---

    @property
    def position(self) -> int:
        """The offset that is read next."""
        return self._position

    def ends(self) -> Ends:
        """The offsets between which records are."""
        return self._ends_by(self._kafka)

    def _ends_by(self, kafka: KafkaConsumer) -> Ends:
        return Ends(*asked(lambda: kafka.get_watermark_offsets(self._place(), REQUEST_TIMEOUT_S), self._name()))

    def end_ahead(self) -> int:
        """The end that the partition has now. Raises ClientError if the position is past it."""
        end = self.ends().latest
        if self._position > end:  # past open transactions at least, which `ends` may leave out
            with made(KafkaConsumer, {**self._settings, "isolation.level": "read_uncommitted"}) as reader:
                all_ends = self._ends_by(reader)
            if self._position > all_ends.latest:
                raise self._out_of_range(all_ends)
        return end

    def seek(self, start: Start) -> None:
        """Go to an offset, a time, or an end of the log."""
        self._check()
        self._position = self._offset_of(start)
        self._assign()

    def seek_to_time(self, when: datetime | float) -> None:
        """Go to the first record of this time (a datetime, or milliseconds) or later; to the end if there is none."""
        self.seek(self._offset_at(milliseconds(when)))

    def rewind(self, records: int | None = None) -> None:
        """Go back by so many offsets, or to the oldest record."""
        earliest = self.ends().earliest
        self.seek(earliest if records is None else max(earliest, self._position - records))

    def _offset_of(self, start: Start) -> int:
        if isinstance(start, datetime):
            return self._offset_at(milliseconds(start))
        if start == "earliest":
            return self.ends().earliest
        if start == "latest":
            return self.ends().latest
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise ValueError(f"start is an offset from 0 on, a datetime, 'earliest' or 'latest', not {start!r}")
        return start

    def _offset_at(self, when_ms: int) -> int:
        wanted = TopicPartition(self.topic, self.partition, when_ms)
        [found] = asked(lambda: self._kafka.offsets_for_times([wanted], REQUEST_TIMEOUT_S), self._name())
        if found.error is not None:
            raise client_error(found.error, self._name())
        return found.offset if found.offset >= 0 else self.ends().latest

    def _assign(self) -> None:
        asked(lambda: self._kafka.assign([self._place(self._position)]), self._name())

    def _check_partition(self) -> None:
        topic = asked(lambda: self._kafka.list_topics(self.topic, REQUEST_TIMEOUT_S), self._name()).topics[self.topic]
        if topic.error is not None:
            raise client_error(topic.error, f"topic {self.topic!r}")
        if self.partition not in topic.partitions:
            words = f"topic {self.topic!r} has no partition {self.partition}: it has {len(topic.partitions)}"
            raise ClientError(words, "UNKNOWN_TOPIC_OR_PART")

    def _place(self, offset: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, self.partition, offset)

    def _name(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- the end ---

    def close(self) -> None:
        if not self._is_closed and not self._process.is_forked:
            self._is_closed = True
            self._kafka.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._is_closed:
            raise ClientError("the consumer is closed")
        self._process.check()
