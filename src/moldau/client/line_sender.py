"""A bounded queue of log lines, and the thread that sends them: the program that logs takes no lock and waits for
nobody.

The law: `offered == delivered + dropped + unsure + waiting`, whatever happens. A line takes pieces of the budget when
it is offered and gives them back when it is settled, so that the budget bounds the queue and librdkafka's copies
together. Everything that several threads do here is one call into C (`deque.pop`, `SimpleQueue.put`, `next`), which no
other thread or signal can interrupt.
"""

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

PIECE_BYTES = 1024
IN_FLIGHT_MAX = 10_000
"""Lines that librdkafka holds: it goes through them under a lock now and then, so they are few."""
POLL_S = 0.05
IDLE_POLL_S = 1.0
LINES_BETWEEN_POLLS = 200
RETRY_S = 1.0
"""Pause before the next producer, after one that failed for good."""

NEVER_ARRIVED = frozenset(
    (
        KafkaError._PURGE_QUEUE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    )
)
"""Errors after which a line is surely not in the topic; after any other it may be."""


class LogCounts(NamedTuple):
    """Lines of one handler in one process. `unsure`: given up on their way, so that nobody knows whether they arrived;
    `waiting`: not settled yet."""

    offered: int
    delivered: int
    dropped: int
    unsure: int
    waiting: int


class Line(NamedTuple):
    """One line on its way."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


class _Barrier(NamedTuple):
    """A place in the queue that somebody waits for, no longer than the deadline."""

    deadline_s: float
    reached: threading.Event


Settled = Callable[[Any, Any], None]


class LineProducer(Protocol):
    """The part of confluent-kafka's producer that is used here."""

    def produce(self, topic: str, *, value: bytes, key: bytes | None, timestamp: int) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int: ...
    def purge(self) -> None: ...
    def __len__(self) -> int: ...


MakeProducer = Callable[[Settled, Callable[[KafkaError], None]], LineProducer]
"""Makes a producer that tells the first function of each line, and the second of its own errors."""


class Tally:
    """A number that many threads count up, exactly and without a lock: `next` of a counter is one step."""

    def __init__(self) -> None:
        self._numbers = count()
        self._looks = 0
        self._looking = threading.Lock()

    def add(self) -> None:
        next(self._numbers)

    def value(self) -> int:
        """The number. To look counts, too; those counts are taken off again."""
        with self._looking:
            self._looks += 1
            return next(self._numbers) - self._looks + 1


class LineSender:
    """Lines of one process to one topic. `offer` and `counts` may be called from any thread."""

    def __init__(self, topic: str, make_producer: MakeProducer, budget_bytes: int) -> None:
        self._topic = topic
        self._make_producer = make_producer
        self._room = deque([None] * (budget_bytes // PIECE_BYTES))
        self._lines: SimpleQueue[Line | _Barrier] = SimpleQueue()
        self._offered = Tally()
        self._dropped = Tally()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing_s: float | None = None
        self._is_closed = False
        self.last_error = ""
        # from here on, what only the sending thread changes
        self._producer: LineProducer | None = None
        self._failed_for_good = False
        self._at_hand: Line | _Barrier | None = None
        self._in_flight = 0
        self._in_flight_pieces = 0
        self._delivered = 0
        self._unsure = 0

    def open(self) -> None:
        """Make the producer now, so that wrong properties are an error here."""
        self._producer = self._make_producer(self._settle, self._note)

    def abandon(self) -> None:
        """Forget everything, in a forked child: the lines are the parent's. The producer's threads are not in this
        process, so it would wait for them for ever if it were freed: a reference that nobody holds keeps it."""
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
        self._lines = SimpleQueue()

    def offer(self, line: Line) -> None:
        """Queue a line if there is room, else drop it."""
        if self._is_own_thread():
            return  # the way to the topic must not describe itself
        self._offered.add()
        if self._is_closed or not self._take_room(len(line.value)):
            self._dropped.add()
            return
        self._lines.put(line)
        if self._thread is None:
            self._start()

    def drop(self) -> None:
        """Count a line that could not even be formatted."""
        self._offered.add()
        self._dropped.add()

    def counts(self) -> LogCounts:
        if self._is_closed:
            self._drop_queued()
        delivered, dropped, unsure = self._delivered, self._dropped.value(), self._unsure
        offered = self._offered.value()
        return LogCounts(offered, delivered, dropped, unsure, offered - delivered - dropped - unsure)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines that were offered before are settled; whether they are."""
        if self._thread is None or self._is_closed or self._is_own_thread():
            return True
        barrier = _Barrier(time.monotonic() + timeout_s, threading.Event())
        self._lines.put(barrier)
        return barrier.reached.wait(timeout_s) and self._in_flight == 0

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for no longer than `timeout_s`; then drop and count the rest."""
        thread = self._thread
        if self._closing_s is None:
            self._closing_s = time.monotonic() + timeout_s
        if thread is None or self._is_own_thread():
            self._is_closed = True
            self._drop_queued()
            self._producer = None
            return
        self._lines.put(_Barrier(self._closing_s, threading.Event()))
        thread.join(timeout_s + RETRY_S)

    def _is_own_thread(self) -> bool:
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def _take_room(self, size_bytes: int) -> bool:
        taken = 0
        try:
            for taken in range(_pieces(size_bytes)):  # noqa: B007  how many were taken when there were no more
                self._room.pop()
        except IndexError:
            self._room.extend([None] * taken)
            return False
        return True

    def _give_back(self, size_bytes: int) -> None:
        self._room.extend([None] * _pieces(size_bytes))

    def _start(self) -> None:
        if not self._starting.acquire(blocking=False):
            return  # another thread does it
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="moldau-log-sender", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError as error:  # no more threads, or the interpreter ends: the next line tries again
            self.last_error = str(error)
        finally:
            self._starting.release()

    def _run(self) -> None:
        while True:
            try:
                if self._producer is None:
                    self.open()
                self._work()
                return
            except Exception as error:  # whatever it is, the program that logs must not see it
                self.last_error = str(error)
                self._give_up_producer()
                if self._is_over():
                    self._end()
                    return
                time.sleep(RETRY_S)

    def _work(self) -> None:
        lines = 0
        while True:
            if self._at_hand is None:
                self._at_hand = self._next()
            item = self._at_hand
            if isinstance(item, Line):
                self._hand_over(item)
            elif item is not None and self._pass(item):
                self._end()
                return
            self._at_hand = None
            lines += 1
            if lines % LINES_BETWEEN_POLLS == 0:
                self._poll(0)

    def _next(self) -> Line | _Barrier | None:
        try:
            return self._lines.get_nowait()
        except Empty:
            pass
        if self._in_flight:
            self._poll(POLL_S)
            return None
        try:
            return self._lines.get(timeout=IDLE_POLL_S)
        except Empty:
            self._poll(0)  # errors of the connection come this way, and would pile up
            return None

    def _hand_over(self, line: Line) -> None:
        """Give a line to the producer, when it has room; drop it if it is refused, or time is up."""
        while not self._is_over():
            try:
                if self._in_flight < IN_FLIGHT_MAX:
                    self._open_producer().produce(
                        self._topic, value=line.value, key=line.key, timestamp=line.timestamp_ms
                    )
                    self._in_flight += 1
                    self._in_flight_pieces += _pieces(len(line.value))
                    return
            except BufferError:
                pass
            except Exception as error:  # too large, or nothing that a producer takes: the next line may be better
                if isinstance(error, KafkaException) and error.args[0].fatal():
                    raise
                self.last_error = str(error)
                break
            self._poll(POLL_S)
        self._dropped.add()
        self._give_back(len(line.value))

    def _pass(self, barrier: _Barrier) -> bool:
        """Wait for what was handed over; whether this was the last thing to do."""
        self._open_producer().flush(max(0.0, barrier.deadline_s - time.monotonic()))
        barrier.reached.set()
        return self._closing_s is not None

    def _end(self) -> None:
        self._is_closed = True
        if isinstance(self._at_hand, Line):
            self._dropped.add()
        self._drop_queued()
        self._give_up_producer()

    def _drop_queued(self) -> None:
        while True:
            try:
                item = self._lines.get_nowait()
            except Empty:
                return
            if isinstance(item, Line):
                self._dropped.add()
            else:
                item.reached.set()

    def _give_up_producer(self) -> None:
        producer, self._producer = self._producer, None
        self._failed_for_good = False
        if producer is None:
            return
        producer.purge()
        producer.flush(POLL_S)  # what becomes of each line is told here
        self._unsure += self._in_flight
        self._room.extend([None] * self._in_flight_pieces)
        self._in_flight = self._in_flight_pieces = 0

    def _poll(self, timeout_s: float) -> None:
        self._open_producer().poll(timeout_s)
        if self._failed_for_good:
            raise RuntimeError(self.last_error)

    def _open_producer(self) -> LineProducer:
        if self._producer is None:
            raise RuntimeError("the producer is closed")
        return self._producer

    def _is_over(self) -> bool:
        return self._closing_s is not None and time.monotonic() >= self._closing_s

    def _settle(self, error: KafkaError | None, message: Any) -> None:
        self._in_flight -= 1
        self._in_flight_pieces -= _pieces(len(message))
        self._give_back(len(message))
        if error is None:
            self._delivered += 1
            return
        if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):  # we gave up: that is no reason
            self.last_error = str(error)
        if error.code() in NEVER_ARRIVED:
            self._dropped.add()
        else:
            self._unsure += 1

    def _note(self, error: KafkaError) -> None:
        self.last_error = str(error)
        if error.fatal():
            self._failed_for_good = True


def _pieces(size_bytes: int) -> int:
    return 1 + size_bytes // PIECE_BYTES
