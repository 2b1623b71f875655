"""One session with a ZooKeeper ensemble: kazoo's thread on one side, the event loop on the other.

Law of the bridge:
- The loop never waits for the thread: it appends to a queue and wakes the thread with at most one byte.
- Everything that the thread has for the loop (answers, watch events, states) goes through one queue in the order in
  which it came from the ensemble, so a listener hears of a change before the answer to a later call.
- `contact` is when the last message *that was answered* was sent. The ensemble counts the session's time from when it
  got that message, which is later, so a session that our clock still allows is not expired there.
  One gap is the ensemble's own: a member that has lost its leader answers pings until its `syncLimit` is over.
- When a session is lost, its kazoo client ends with it. Nothing reconnects behind the owner's back.

Kazoo finds the members, connects, retries and writes requests. What it lacks is added here, at the seams it has: whole
batches per system call, persistent recursive watches (ZooKeeper 3.6), the clock above, and the end of a connection to a
member that hangs while requests keep coming (kazoo would send no ping then, and never notice).
"""

import asyncio
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]  # the package has no type information
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, SessionExpiredError  # type: ignore[import-untyped]  # as above
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]  # as above
from kazoo.protocol.connection import ConnectionHandler  # type: ignore[import-untyped]  # as above
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]  # as above
    Connect,
    ReplyHeader,
    Watch,
    int_struct,
    write_string,
)
from kazoo.protocol.states import KazooState  # type: ignore[import-untyped]  # as above
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]  # as above

Request = Any
"""One of kazoo's request tuples, or one of those below."""

REQUEST_BYTES_MAX = (1 << 20) - 1024
"""Bytes of a request: at a larger one an ensemble cuts the connection (its `jute.maxbuffer`, 1 MiB less one byte unless
set)."""

_SEND_BYTES = 1 << 16
_RECEIVE_BYTES = 1 << 16
_RETRY_FIRST_S, _RETRY_MAX_S = 0.05, 1.0
_WATCH_XID, _PING_XID, _XID_MAX = -1, -2, (1 << 31) - 1
_ADD_WATCH, _PERSISTENT_RECURSIVE = 106, 1
_REMOVE_WATCHES, _OF_ANY_KIND = 18, 3
_request_header = struct.Struct("!iii")


class WatchRequest(NamedTuple):
    """Request about a watch that lasts as long as the connection; kazoo does not know these requests."""

    path: str
    type: int
    kind: int

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(self.kind))

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> None:
        return None


def add_watch(path: str) -> WatchRequest:
    """A request for a watch on every change of the node and of everything below it."""
    return WatchRequest(path, _ADD_WATCH, _PERSISTENT_RECURSIVE)


def remove_watch(path: str) -> WatchRequest:
    """A request that ends the watch of `add_watch`."""
    return WatchRequest(path, _REMOVE_WATCHES, _OF_ANY_KIND)


class Prepared(NamedTuple):
    """A request that is bytes already, so that its size is known before it is sent."""

    request: Request
    body: bytes

    @property
    def type(self) -> int:
        return int(self.request.type)

    def serialize(self) -> bytes:
        return self.body

    def deserialize(self, data: bytes, offset: int) -> Any:
        return self.request.deserialize(data, offset)


class Credentials(NamedTuple):
    """Credentials with which a new connection goes on with a session."""

    session_id: int
    password: bytes


class Inbox:
    """Queue from the thread to the loop, in order; one wake-up of the loop for many actions."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._actions: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, action: Callable[[], None]) -> None:
        """Add an action. Called in the thread."""
        self._actions.append(action)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits for this any more
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # before the queue is emptied: what comes later wakes the loop again
        while self._actions:
            self._actions.popleft()()


class Call:
    """A request under way, in the shape of kazoo's result objects; one of `under_way` until it is answered."""

    __slots__ = ("_inbox", "_under_way", "future", "sent_at")

    def __init__(self, inbox: Inbox, future: "asyncio.Future[Any]", under_way: "set[Call]") -> None:
        self._inbox = inbox
        self._under_way = under_way
        self.future = future
        self.sent_at: float | None = None

    def set(self, value: object = None) -> None:
        self._inbox.put(partial(self._succeed, value))

    def set_exception(self, error: Exception) -> None:
        self._inbox.put(partial(self.fail, error))

    def _succeed(self, value: object) -> None:
        self._under_way.discard(self)
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: Exception) -> None:
        """Fail the call. Called in the loop."""
        self._under_way.discard(self)
        if not self.future.done():
            self.future.set_exception(error)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no type information
    """Threads as kazoo makes them, without the two that would run callbacks: ours run in the loop."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """A connection to one member, given up after a part of the session's time: kazoo would wait all of it."""
        options["timeout"] = options["timeout"] / 3
        return super().create_connection(*args, **options)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no type information
    """Kazoo's connection, reading and writing in batches and keeping `contact`. All but `wake` runs in its thread."""

    _xid: int  # kazoo's own

    def __init__(self, client: Any, inbox: Inbox, on_change: Callable[[str], None]) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self.contact: float = time.monotonic()
        self.timeout_s: float = client._session_timeout / 1000
        self.credentials = Credentials(0, b"")
        self._inbox = inbox
        self._on_change = on_change
        self._received = bytearray()
        self._ping_sent = 0.0
        self._woken = False

    def wake(self) -> None:
        """Wake the thread, as something is in the client's queue. Never more than one byte under way: a full pipe would
        block."""
        if not self._woken and self._write_sock is not None:
            self._woken = True
            self._write_sock.send(b"\0")

    def _invoke(self, timeout: float, request: Request, xid: int | None = None) -> Any:
        sent_at = time.monotonic()
        result = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and result[0].time_out > 0:
            self.timeout_s = result[0].time_out / 1000
            self.credentials = Credentials(result[0].session_id, result[0].passwd)
            self.contact = sent_at
            self._received.clear()
            self._drop_unanswered()
        return result

    def _drop_unanswered(self) -> None:
        """Fail requests of a connection before this one, which get no answer. Kazoo forgets them in most ways to lose
        one."""
        pending = self.client._pending
        while pending:
            _, call, _ = pending.popleft()
            if call is not None:
                call.set_exception(ConnectionLoss())

    def _send_ping(self, connect_timeout: float) -> None:
        self._ping_sent = time.monotonic()
        super()._send_ping(connect_timeout)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._read_sock.recv(64)
        self._woken = False  # before the queue is looked at: what is added later wakes us again
        now = time.monotonic()
        if now - self.contact > read_timeout:
            raise ConnectionDropped(f"no answer for {now - self.contact:.1f} s")
        batch = bytearray()
        while self.client._queue and len(batch) < _SEND_BYTES:
            batch += self._next_request(now)
        if batch:
            self._write(batch, connect_timeout)
        if self.client._queue:
            self.wake()

    def _next_request(self, now: float) -> bytes:
        request, call = self.client._queue.popleft()
        xid: int = self._xid % _XID_MAX + 1
        self._xid = xid
        if call is not None:
            call.sent_at = now
        self.client._pending.append((request, call, xid))
        body = bytes(request.serialize())
        return _request_header.pack(len(body) + 8, xid, request.type) + body

    def _read_socket(self, _read_timeout: float) -> Any:
        """Read every message that has arrived; kazoo wants to know if one was the answer to closing."""
        with self._socket_error_handling():
            try:
                chunk = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return None
        if not chunk:
            raise ConnectionDropped("the member closed the connection")
        self._received += chunk
        response = None
        for message in self._messages():
            response = self._handle(message) or response
        return response

    def _messages(self) -> list[bytes]:
        found: list[bytes] = []
        start = 0
        while len(self._received) - start >= 4:
            (size,) = int_struct.unpack_from(self._received, start)
            end = start + 4 + size
            if end > len(self._received):
                break
            found.append(bytes(self._received[start + 4 : end]))
            start = end
        del self._received[:start]
        return found

    def _handle(self, message: bytes) -> Any:
        header, offset = ReplyHeader.deserialize(message, 0)
        if header.xid == _PING_XID:
            self.ping_outstanding.clear()
            self.contact = max(self.contact, self._ping_sent)
            return None
        if header.xid == _WATCH_XID:
            event, _ = Watch.deserialize(message, offset)
            self._inbox.put(partial(self._on_change, event.path))
            return None
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            # Kazoo would let its thread die of it; a new connection begins with nothing pending.
            raise ConnectionDropped(f"an answer to request {header.xid}, which is not the next")
        call = pending[0][1]
        if call is not None:
            self.contact = max(self.contact, call.sent_at)
        return self._read_response(header, message, offset)


class ZooKeeperSession:
    """A session, from the first connection to its loss. Paths are the ensemble's own, without a chroot.

    `on_state` hears kazoo's SUSPENDED, CONNECTED and, once and last, LOST; `on_change` the path of a watch event.
    """

    def __init__(
        self,
        hosts: str,
        timeout_s: float,
        on_state: Callable[[str], None],
        on_change: Callable[[str], None],
        resumed: Credentials | None = None,
    ) -> None:
        """Begin a session; `resumed` goes on with that one if the ensemble still knows it."""
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(self._loop)
        self._on_state = on_state
        self._calls: set[Call] = set()
        self._decided = asyncio.Event()
        self._ended = asyncio.Event()
        self._clock_check: asyncio.TimerHandle | None = None
        self._lost = False
        self._expired = False
        self.state = ""
        self._client = _new_client(hosts, timeout_s, resumed)
        self._connection = _Connection(self._client, self._inbox, on_change)
        self._client._connection = self._connection
        self._client.add_listener(self._note_state)
        self._client.start_async()

    @property
    def session_id(self) -> int:
        """The session's id; 0 before the first connection."""
        return self._connection.credentials.session_id

    @property
    def lost(self) -> bool:
        """Whether the session is lost, by the ensemble's word or by our clock. The latter is true at once when a
        stopped process wakes up."""
        return self._lost or (self._decided.is_set() and self._time_left() <= 0)

    @property
    def left_behind(self) -> Credentials | None:
        """The session that may still live at the ensemble after it was lost by our clock."""
        return None if self._expired else self._connection.credentials

    async def connected(self, timeout_s: float) -> bool:
        """Whether the first connection came about in time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._decided.wait(), timeout_s)
        return self._decided.is_set() and not self._lost

    async def ended(self) -> None:
        """Return when nothing of a lost session runs here any more."""
        await self._ended.wait()

    def start(self, requests: Sequence[Request]) -> list[Call]:
        """Send `requests`, in order, as soon as there is a connection. Their futures may raise kazoo's errors."""
        calls = [Call(self._inbox, self._loop.create_future(), self._calls) for _ in requests]
        if self._lost:
            for call in calls:
                call.fail(SessionExpiredError())
            return calls
        self._calls.update(calls)
        self._client._queue.extend(zip(requests, calls, strict=True))
        self._connection.wake()
        return calls

    def give_up(self) -> None:
        """Lose the session now: calls under way fail, the owner hears LOST, the thread ends by itself."""
        if not self._lost:
            self._end()
            self._stop_client_later()
            self._on_state(KazooState.LOST)

    async def close(self) -> None:
        """End the session at the ensemble too, if it can be reached, without a word to the owner."""
        if self._lost:
            return
        self._end()
        if self.state == KazooState.CONNECTED:
            await asyncio.to_thread(self._stop_client)
        else:
            self._stop_client_later()

    def _end(self) -> None:
        self._lost = True
        self._decided.set()
        if self._clock_check is not None:
            self._clock_check.cancel()
        for call in tuple(self._calls):
            call.fail(SessionExpiredError())

    def _stop_client_later(self) -> None:
        """Stop the client in another thread: where nobody answers, it may be some seconds from noticing."""
        threading.Thread(target=self._stop_client, name="zookeeper-end", daemon=True).start()

    def _stop_client(self) -> None:
        """Stop the client. In any other thread than the loop's, as it waits."""
        try:
            self._client.stop()
            self._connection.stop()
            self._client.close()
        finally:
            self._inbox.put(self._ended.set)

    def _note_state(self, state: str) -> None:
        """Note kazoo's state. Called in the thread."""
        if state == KazooState.LOST:
            self._client._stopped.set()  # kazoo would begin a new session by itself
        self._inbox.put(partial(self._take_state, state))

    def _take_state(self, state: str) -> None:
        if self._lost:
            return
        self.state = state
        if state == KazooState.LOST:
            self._expired = True
            self.give_up()
            return
        if not self._decided.is_set():
            self._decided.set()
            self._check_clock()
        self._on_state(state)

    def _time_left(self) -> float:
        return self._connection.contact + self._connection.timeout_s - time.monotonic()

    def _check_clock(self) -> None:
        if self.lost:
            self.give_up()
        else:
            self._clock_check = self._loop.call_later(max(self._time_left(), 0.001), self._check_clock)


def _new_client(hosts: str, timeout_s: float, resumed: Credentials | None) -> Any:
    handler = _Handler()
    retry = KazooRetry(max_tries=-1, delay=_RETRY_FIRST_S, max_delay=_RETRY_MAX_S, sleep_func=handler.sleep_func)
    return KazooClient(hosts, timeout_s, client_id=resumed, handler=handler, connection_retry=retry)
