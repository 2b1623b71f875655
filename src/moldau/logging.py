"""`KafkaHandler`: log records to a topic, without ever blocking or breaking the program that logs.

    logging.getLogger().addHandler(KafkaHandler("localhost:9092", "logs"))

A line is formatted where it is logged, queued, and sent by a thread of the handler. While no broker answers the queue
fills up to its bound; what does not fit is dropped and counted. Lines of one thread arrive in their order. A forked
process sends its own lines by a producer of its own. See docs/python.md.
"""

import logging
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, Producer

from moldau.client.line_sender import IN_FLIGHT_MAX, PIECE_BYTES, Line, LineSender, LogCounts, MakeProducer
from moldau.client.log_lines import PLAIN_TEXT, JsonFormatter
from moldau.client.settings import Bootstrap, brokers

__all__ = ["JsonFormatter", "KafkaHandler", "LogCounts"]

QUEUE_BYTES = 16 * 2**20
CLOSE_TIMEOUT_S = 5.0
DEFAULTS: Mapping[str, Any] = {
    "enable.idempotence": True,  # a batch that is sent again is stored once, and in its order
    "message.timeout.ms": 0,  # a line is dropped for want of room, which is counted exactly, and not on its way
    "linger.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "log_level": 0,  # librdkafka would write to stderr
}
"""Properties of the producer; the handler's own `properties` come after them."""

_HOST = os.uname().nodename
Key = Callable[[logging.LogRecord], str | None]
_KEYS: Mapping[str, Key] = {
    "thread": lambda record: f"{_HOST}:{record.process}:{record.thread}",
    "process": lambda record: f"{_HOST}:{record.process}",
    "logger": lambda record: record.name,
    "none": lambda _record: None,
}
_handlers: "weakref.WeakSet[KafkaHandler]" = weakref.WeakSet()


class KafkaHandler(logging.Handler):
    """Handler that sends records to a topic. `last_error` says why lines do not arrive."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        *,
        level: int | str = logging.NOTSET,
        format: str = "json",
        key: str | Key = "thread",
        queue_bytes: int = QUEUE_BYTES,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a handler; ValueError if something is wrong with the arguments. No broker need be there.

        `format`: "json" or "text", unless a formatter is set. `key`: "thread", "process", "logger", "none", or a
        function of the record; records of one key keep their order. `queue_bytes` bounds what waits, in pieces of
        1 KiB. `close_timeout_s`: how long the end of the program may wait for lines to be sent. `properties`:
        librdkafka's, for the producer.
        """
        if not topic or not isinstance(topic, str):
            raise ValueError(f"{topic!r} is not a topic's name")
        if queue_bytes < PIECE_BYTES:
            raise ValueError(f"queue_bytes is {queue_bytes}, less than one piece of {PIECE_BYTES}")
        super().__init__(level)
        self.formatter = _formatter(format)
        self._key = _key(key)
        self._close_timeout_s = close_timeout_s
        settings = {"bootstrap.servers": brokers(bootstrap), **DEFAULTS, **(properties or {})}
        self._new_sender = partial(LineSender, topic, _producer_of(settings), queue_bytes)
        self._sender = self._new_sender()
        try:
            self._sender.open()
        except (KafkaException, TypeError, ValueError) as error:
            raise ValueError(f"a KafkaHandler's producer: {error}") from None
        _handlers.add(self)
        _close_with_child(self)

    def createLock(self) -> None:
        """Have no lock: `emit` needs none, and nobody shall wait for another thread's line."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Emit the record, if the filters let it pass."""
        passed = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record and queue it; dropped if there is no room."""
        try:
            key = self._key(record)
            line = self.format(record).encode("utf-8", "backslashreplace")
            timestamp_ms = max(0, int(record.created * 1000))
        except Exception:  # as every handler: logging says on stderr what is wrong with the call
            self._sender.drop()
            self.handleError(record)
            return
        self._sender.offer(Line(None if key is None else key.encode("utf-8", "backslashreplace"), line, timestamp_ms))

    def wait_until_sent(self, timeout_s: float) -> bool:
        """Wait until the lines so far are settled; whether they are. `flush` does nothing: some programs call it for
        each line."""
        return self._sender.flush(timeout_s)

    def close(self) -> None:
        """Send what is queued, for `close_timeout_s` at the most; the rest, and what comes later, is dropped and
        counted."""
        self._sender.close(self._close_timeout_s)
        super().close()

    @property
    def counts(self) -> LogCounts:
        """Lines of this process so far."""
        return self._sender.counts()

    @property
    def dropped(self) -> int:
        """Number of lines of this process that did not fit, or that the broker refused."""
        return self.counts.dropped

    @property
    def last_error(self) -> str:
        """The newest trouble on the way to the broker; empty: none so far."""
        return self._sender.last_error

    def _after_fork(self) -> None:
        """Begin anew in a forked child: the queue, the counts and the connections are the parent's."""
        self._sender.abandon()
        self._sender = self._new_sender()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # it clears what is registered in a child, and calls this afterwards
            util.register_after_fork(self, _close_with_child)


def _formatter(name: str) -> logging.Formatter:
    if name == "json":
        return JsonFormatter()
    if name == "text":
        return logging.Formatter(PLAIN_TEXT)
    raise ValueError(f"format is {name!r}, neither 'json' nor 'text'")


def _key(key: str | Key) -> Key:
    if callable(key):
        return key
    if key not in _KEYS:
        raise ValueError(f"key is {key!r}, none of {', '.join(map(repr, _KEYS))} and no function")
    return _KEYS[key]


def _producer_of(settings: Mapping[str, Any]) -> MakeProducer:
    def make(settled: Any, failed: Any) -> Any:
        bounds = {"queue.buffering.max.messages": IN_FLIGHT_MAX}
        return Producer({**bounds, **settings, "on_delivery": settled, "error_cb": failed})

    return make


def _close_with_child(handler: KafkaHandler) -> None:
    """Have the handler closed at the end of a child of multiprocessing, which may end without `atexit`."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(handler, handler.close, exitpriority=-100)


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
