"""`Producer`: records to topics, each with a future that says where it is or why it is not.

    with Producer("localhost:9092", value=JSON) as producer:
        producer.send("visits", {"page": "/"}, key="praha")

The law: no record is lost without a word. Its failure is in its future; of a record whose future nobody asked,
`flush` and the end of the `with` block raise it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from moldau.client.errors import ClientError, client_error
from moldau.client.one_process import OneProcess
from moldau.client.records import HeadersIn, Sent, in_order, milliseconds
from moldau.client.serdes import PLAIN, Serde
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap, asked, is_idempotent, made, settings
from moldau.client.transactions import Transactional

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import TypeVar

    from moldau.client.consumer import Consumer

    K = TypeVar("K", default=str | bytes)
    V = TypeVar("V", default=str | bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

Partitioner = Callable[[str, K | None, V | None, int], int]
"""Function of topic, key, value and number of partitions; returns the partition."""

ACKS = ("all", "-1", "1", "0")
ANY_PARTITION = -1
POLL_S = 0.1
WAIT_FOR_ROOM_S = 60.0
"""Seconds that `send` waits while the buffer is full, as `max.block.ms` does in Java."""
PARTITIONS_KEPT_S = 300.0
"""Seconds for which a topic's number of partitions is believed, as `metadata.max.age.ms` says by default."""
DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "partitioner": "murmur2_random",  # a key goes where the Java clients put it
}


class Delivery(Future[Sent]):
    """Future of one record."""

    is_watched = False
    """Whether the program asks for the outcome itself."""

    def result(self, timeout: float | None = None) -> Sent:
        """The record's place. Raises ClientError, or TimeoutError after `timeout` seconds."""
        self.is_watched = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.is_watched = True
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Sent]], object]) -> None:
        self.is_watched = True
        super().add_done_callback(fn)


class Producer(Generic[K, V]):
    """Sends records. Threads may share it; a forked process makes its own.

    `key`, `value`: serdes; without one text and bytes may be sent. `acks`: all, 1 or 0. `partitioner`: a function of
    topic, key, value and number of partitions, or a name of librdkafka's. `transactional_id` allows `transaction()`.
    `properties` are librdkafka's and go before all else.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        key: Serde[K] = PLAIN,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = PLAIN,  # type: ignore[assignment]  # the same
        acks: str | int = "all",
        partitioner: Partitioner[K, V] | str | None = None,
        transactional_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        if str(acks) not in ACKS:
            raise ValueError(f"acks is {acks!r}, none of 'all', 1 and 0")
        chosen = {**DEFAULTS, "acks": acks, "enable.idempotence": is_idempotent({"acks": acks, **(properties or {})})}
        if isinstance(partitioner, str):
            chosen["partitioner"] = partitioner
        if transactional_id is not None:
            chosen["transactional.id"] = transactional_id
        self.key_serde = key
        self.value_serde = value
        self._partitioner = partitioner if callable(partitioner) else None
        self._partitions: dict[str, tuple[float, int]] = {}
        self._fatal: KafkaError | None = None
        self._lock = threading.Lock()
        self._unseen: list[Delivery] = []
        """Deliveries that failed since the last flush."""
        self._is_closed = False
        self._kafka = made(KafkaProducer, {**settings(bootstrap, chosen, properties), "error_cb": self._on_error})
        self._process = OneProcess(self._kafka, "producer")
        self._transactional = Transactional(self._kafka, transactional_id)
        self._poller = threading.Thread(target=self._poll, name="moldau-producer", daemon=True)
        self._poller.start()

    # --- sending ---

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersIn | None = None,
        timestamp: "datetime | float | None" = None,
    ) -> Delivery:
        """Queue a record; returns its future at once, unless the buffer is full. Raises SerdeError, or ClientError if
        there is no room for a minute."""
        deadline = time.monotonic() + WAIT_FOR_ROOM_S
        while True:
            delivery = self.offer(topic, value, key, partition=partition, headers=headers, timestamp=timestamp)
            if delivery is not None:
                return delivery
            if time.monotonic() > deadline:
                raise ClientError(f"no room in the buffer for {WAIT_FOR_ROOM_S:.0f} s: does a broker answer?")
            self._kafka.poll(POLL_S)

    def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersIn | None = None,
        timestamp: "datetime | float | None" = None,
        timeout_s: float | None = None,
    ) -> Sent:
        """The place of a record that the cluster has. Raises ClientError, or TimeoutError."""
        sent = self.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp)
        return sent.result(timeout_s)

    def offer(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersIn | None = None,
        timestamp: "datetime | float | None" = None,
    ) -> Delivery | None:
        """Queue a record if there is room for it; None if there is not. Waits for nobody, unless a serde or a
        partitioner has to ask first."""
        self._check()
        chosen = self._partition(topic, key, value) if partition is None else partition
        more: dict[str, Any] = {} if timestamp is None else {"timestamp": milliseconds(timestamp)}
        delivery = Delivery()
        delivery.set_running_or_notify_cancel()  # what is on its way cannot be called back
        try:
            self._kafka.produce(
                topic,
                self.value_serde.serialize(value, topic, "value"),
                self.key_serde.serialize(key, topic, "key"),
                chosen,
                on_delivery=lambda error, message: self._settle(delivery, error, message),
                headers=in_order(headers),  # type: ignore[arg-type]  # its stubs know no header without a value
                **more,
            )
        except BufferError:
            return None
        except KafkaException as error:
            raise client_error(error.args[0], f"a record for {topic!r}") from error
        return delivery

    def _settle(self, delivery: Delivery, error: KafkaError | None, message: Message) -> None:
        if error is None:
            timestamp_ms = message.timestamp()[1]
            offset = message.offset()
            place = Sent(
                message.topic() or "", message.partition() or 0, -1 if offset is None else offset, timestamp_ms
            )
            delivery.set_result(place)
            return
        with self._lock:
            self._unseen.append(delivery)
        delivery.set_exception(client_error(self._fatal or error, f"a record for {message.topic()!r}"))

    def _partition(self, topic: str, key: K | None, value: V | None) -> int:
        if self._partitioner is None:
            return ANY_PARTITION
        count = self.partitions(topic)
        chosen = self._partitioner(topic, key, value, count)
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise ValueError(f"the partitioner chose {chosen!r} of {topic!r}, which has partitions 0 to {count - 1}")
        return chosen

    def knows_partitions(self, topic: str) -> bool:
        """Whether `offer` chooses a partition without asking the cluster."""
        return self._partitioner is None or time.monotonic() < self._partitions.get(topic, (0.0, 0))[0]

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic. Raises ClientError."""
        until_s, count = self._partitions.get(topic, (0.0, 0))
        if time.monotonic() >= until_s:
            found = asked(lambda: self._kafka.list_topics(topic, REQUEST_TIMEOUT_S), f"topic {topic!r}").topics[topic]
            if found.error is not None:
                raise client_error(found.error, f"topic {topic!r}")
            count = len(found.partitions)
            self._partitions[topic] = (time.monotonic() + PARTITIONS_KEPT_S, count)
        return count

    # --- transactions ---

    @contextmanager
    def transaction(self, consumer: "Consumer[Any, Any] | None" = None) -> Iterator[None]:
        """Send all records of the `with` block or none; with a consumer the records that it has handed out count as
        handled in the same moment. An exception aborts, and goes on its way."""
        if consumer is not None and consumer.auto_commit:
            raise ClientError("a consumer in a transaction must not commit by itself: Consumer(..., auto_commit=False)")
        self._check()
        self._transactional.begin()
        try:
            yield
            self.flush()
            if consumer is not None:
                consumer.give_offsets_to(self._transactional)
            self._transactional.commit()
        except BaseException:
            if self._process.is_forked:
                raise
            self._transactional.abort()
            with self._lock:
                self._unseen.clear()  # they failed together, and the exception says why
            if consumer is not None:
                consumer.rewind_to_handled()
            raise

    # --- the end ---

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is sent or has failed. Raises ClientError if one has failed whose future nobody
        asked, or if `timeout_s` is over before."""
        self._process.check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while len(self._kafka):
            self._kafka.flush(POLL_S)  # in pieces, so that Ctrl-C is heard
            if deadline is not None and time.monotonic() > deadline and len(self._kafka):
                raise ClientError(f"{len(self._kafka)} records are not sent yet after {timeout_s:g} s")
        with self._lock:
            failed = [each for each in self._unseen if not each.is_watched]
            self._unseen.clear()
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            first = failed[0].exception()
            raise ClientError(f"{first}{more}", getattr(first, "code", ""), is_fatal=self._fatal is not None)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, and end. Raises what `flush` raises. In a forked process it is the parent's, who does both."""
        if self._is_closed or self._process.is_forked:
            return
        try:
            self.flush(timeout_s)
        finally:
            self._is_closed = True
            self._poller.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:  # an exception of the block says more
                raise

    def _check(self) -> None:
        if self._is_closed:
            raise ClientError("the producer is closed")
        self._process.check()
        if self._fatal is not None:
            raise client_error(self._fatal, "the producer has failed")

    def _on_error(self, error: KafkaError) -> None:
        """Keep an error that is fatal; after any other librdkafka connects again by itself."""
        if error.fatal():
            self._fatal = error

    def _poll(self) -> None:
        while not self._is_closed:
            self._kafka.poll(POLL_S)
