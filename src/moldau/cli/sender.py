"""A producer that waits while librdkafka's queue is full, tells what failed, and says when no broker answers."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from moldau.cli.common import describe
from moldau.cli.failures import ToolError
from moldau.cli.metadata import partitions_of
from moldau.cli.record_json import InputRecord

FAILURES_SHOWN_MAX = 10
LAST_WORDS_S = 5.0
"""Time for which an interrupted command goes on to send."""
SLICE_S = 0.2
"""The longest time in which Ctrl-C is not noticed."""


class Sender:
    """Sender of records to one topic. `partitions` are those that the topic has."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        max_block_ms: int | None = None,
        on_sent: Callable[[Message], None] | None = None,
    ) -> None:
        self._on_sent = on_sent
        self.failures = 0
        self.sent = 0
        """Records that were handed over."""
        self._fatal: KafkaError | None = None
        self._was_told = False
        self._max_block_s = float("inf") if max_block_ms is None else max_block_ms / 1000
        self.producer = Producer({**settings, "error_cb": self._on_error})
        self._topic = topic
        self.partitions = partitions_of(self.producer, topic)

    def send(self, record: InputRecord, partition: int = -1) -> None:
        """Hand a record over; it is sent in the background."""
        deadline_s = 0.0
        while True:
            try:
                self.producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=partition,
                    on_delivery=self._on_delivery,
                    timestamp=record.timestamp_ms or 0,  # 0: now
                )
                break
            except BufferError:
                deadline_s = self._await_room(deadline_s)
            except KafkaException as error:
                raise ToolError(f"record {self.sent + 1} is refused: {self._reason(error.args[0])}") from error
        self.sent += 1
        self.producer.poll(0)
        self._raise_if_fatal()

    @staticmethod
    def _reason(error: KafkaError) -> str:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return "it is larger than message.max.bytes (--command-property message.max.bytes=N, and the topic's own)"
        return describe(error)

    def _remedy(self, error: KafkaError) -> str:
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return ""
        return f" (`moldau topics alter {self._topic} --config max.message.bytes=N` lets larger ones in)"

    def _await_room(self, deadline_s: float) -> float:
        """Wait a moment; returns when to give up."""
        now_s = time.monotonic()
        deadline_s = deadline_s or now_s + self._max_block_s
        if now_s > deadline_s:
            raise ToolError(f"the queue has been full for {self._max_block_s:g} s: no broker takes records")
        self.producer.poll(SLICE_S)
        self._raise_if_fatal()
        return deadline_s

    def flush(self, timeout_s: float = float("inf")) -> int:
        """Wait until every record is sent or has failed; returns how many still wait after the timeout."""
        deadline_s = time.monotonic() + timeout_s
        while (left := self.producer.flush(SLICE_S)) and time.monotonic() < deadline_s:
            self._raise_if_fatal()
        self._raise_if_fatal()
        return left

    def give_up(self) -> None:
        """Send what was handed over, for a moment, after Ctrl-C or an error; say how much could not be sent."""
        left = self.flush(LAST_WORDS_S)
        if left:
            sys.stderr.write(f"warning: {left} records were not sent\n")

    def _raise_if_fatal(self) -> None:
        if self._fatal is not None:
            raise KafkaException(self._fatal)

    def _on_error(self, error: KafkaError) -> None:
        """Note an error that is fatal; after any other librdkafka connects again by itself."""
        if error.fatal():
            self._fatal = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN and not self._was_told:
            self._was_told = True
            sys.stderr.write("warning: no broker answers; trying again\n")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._was_told = self._was_told and error is not None
        if error is None and self._on_sent is not None:
            self._on_sent(message)
        if error is None or self._fatal is not None:
            return
        self.failures += 1
        if self.failures <= FAILURES_SHOWN_MAX:
            value = (message.value() or b"")[:40].decode(errors="replace")
            sys.stderr.write(f"error: not sent: {value!r}: {describe(error)}{self._remedy(error)}\n")
        elif self.failures == FAILURES_SHOWN_MAX + 1:
            sys.stderr.write("error: more records were not sent\n")


def partition_checker(sender: Sender, topic: str, advice: str = "") -> Callable[[int], int]:
    """A function that returns the number of a partition that the topic has; ToolError for another."""
    present = frozenset(sender.partitions)

    def checked(partition: int) -> int:
        if partition not in present:
            raise ToolError(f"topic {topic!r} has no partition {partition}: it has {len(present)}{advice}")
        return partition

    return checked
