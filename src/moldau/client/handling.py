"""A consumer's loop: each record to a handler, again after an error, and to a dead-letter topic after the last one.

The law: a record counts as handled when the handler has returned, or when the cluster has acknowledged its dead letter.
A record whose retries a stop interrupts is not handled, and comes again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from confluent_kafka import Message

from moldau.client.dead_letters import letter_headers
from moldau.client.errors import SerdeError
from moldau.client.message_headers import read_headers
from moldau.client.producer import Producer
from moldau.client.records import Record, place_of
from moldau.client.serdes import BYTES
from moldau.client.settings import Bootstrap, log
from moldau.client.signals import stopping_on_signals

if TYPE_CHECKING:
    from moldau.client.consumer import Consumer

K = TypeVar("K")
V = TypeVar("V")
Handler = Callable[[Record[K, V]], object]
AsyncHandler = Callable[[Record[K, V]], Awaitable[object]]

BACKOFF_MAX_S = 10.0
"""The longest pause between two tries: far from `max.poll.interval.ms`, after which a member is thrown out."""
DOUBLED_MAX = 1000
"""Number of times that a pause is doubled: floating point has an end, and some want tries without one."""


@dataclass(slots=True)
class Handled:
    """Counts of a loop: records that the handler took, tries after an error, and records that went to the dead-letter
    topic."""

    handled: int = 0
    retried: int = 0
    dead: int = 0


class Retries:
    """Decides what follows an error."""

    def __init__(self, retries: int, backoff_s: float, permanent: tuple[type[Exception], ...]) -> None:
        self._retries = retries
        self._backoff_s = backoff_s
        self._permanent: tuple[type[Exception], ...] = (SerdeError, *permanent)

    def pause_s(self, error: Exception, tries: int) -> float | None:
        """The pause before the next try, after so many; None: there is no next."""
        if isinstance(error, self._permanent) or tries > self._retries:
            return None
        return min(BACKOFF_MAX_S, self._backoff_s * 2.0 ** min(tries - 1, DOUBLED_MAX))


def _words(error: Exception) -> str:
    """The message of an error, as a log and a header can have it: characters that are no UTF-8 are escaped."""
    return str(error).encode(errors="backslashreplace").decode()


class DeadLetters:
    """Writes dead letters to a topic of the consumer's cluster."""

    def __init__(self, topic: str, group_id: str, bootstrap: Bootstrap | None, properties: dict[str, Any]) -> None:
        self._topic = topic
        self._group_id = group_id
        self._producer = Producer(bootstrap, key=BYTES, value=BYTES, properties=_for_producers(properties))

    def write(self, message: Message, error: Exception) -> None:
        """Write a message as it is, with the reason, and wait until the cluster has it. Raises ClientError."""
        place = place_of(message)
        reason = f"{type(error).__name__}: {_words(error)}"
        headers = letter_headers(read_headers(message) or [], self._group_id, *place, message.timestamp()[1], reason)
        self._producer.send_and_wait(self._topic, message.value(), message.key(), headers=list(headers))
        log.warning("%s of group %s is in %s now: %s", place, self._group_id, self._topic, reason)

    def close(self) -> None:
        self._producer.close()


def _for_producers(properties: dict[str, Any]) -> dict[str, Any]:
    """Properties without those that only a consumer has: librdkafka would grumble."""
    consumers = ("group.", "session.", "heartbeat.", "max.poll.", "fetch.", "auto.offset.", "isolation.", "partition.a")
    return {name: value for name, value in properties.items() if not name.startswith(consumers)}


class Handling(Generic[K, V]):
    """The loop of one consumer."""

    def __init__(
        self,
        consumer: "Consumer[K, V]",
        handler: Handler[K, V],
        retries: int,
        backoff_s: float,
        dead_letters: str | None,
        permanent: tuple[type[Exception], ...],
    ) -> None:
        self._consumer = consumer
        self._handler = handler
        self._retries = Retries(retries, backoff_s, permanent)
        self._letters = (
            None
            if dead_letters is None
            else DeadLetters(dead_letters, consumer.group_id, consumer.bootstrap, consumer.properties)
        )
        self._counts = Handled()

    def run(self, on_signals: bool, limit: int | None, idle_s: float | None) -> Handled:
        """Handle records until the end; returns counts."""
        try:
            if not on_signals:
                self._loop(limit, idle_s)
                return self._counts
            with stopping_on_signals(self._consumer.stop):
                self._loop(limit, idle_s)
        finally:
            if self._letters is not None:
                self._letters.close()
        return self._counts

    def _loop(self, limit: int | None, idle_s: float | None) -> None:
        left = limit
        while left is None or left > 0:
            message = self._consumer.next_message(idle_s)
            if message is None:
                return
            if not self._handle(message):
                self._consumer.give_back(message)
                return
            self._consumer.mark_handled()
            left = None if left is None else left - 1

    def _handle(self, message: Message) -> bool:
        """Whether the record is done with; it is not if a stop came between two tries."""
        tries = 0
        while True:
            tries += 1
            try:
                self._handler(self._consumer.decoded(message))
                self._counts.handled += 1
                return True
            except Exception as error:  # a handler may raise what it likes
                pause_s = self._retries.pause_s(error, tries)
                if pause_s is None:
                    self._bury(message, error)
                    return True
                log.info("%s: %s; try %d in %g s", place_of(message), _words(error), tries + 1, pause_s)
                self._counts.retried += 1
            if self._consumer.wait_for_stop(pause_s):
                return False

    def _bury(self, message: Message, error: Exception) -> None:
        if self._letters is None:
            self._consumer.give_back(message)
            raise error
        self._letters.write(message, error)
        self._counts.dead += 1
