"""One client's connection.

Answers leave in the order their requests came: clients match them by position. A request is taken up as soon as it is
read (several may be waiting for a sync or for data at once), but never before the one ahead of it is decided, never
while an earlier answer is still stuck in front of a client that does not read, and never more than
REQUESTS_IN_FLIGHT_MAX at a time (up to 16 that wait for a sync together count as one): so a connection's memory is
bounded whatever its client does.

However many requests a client has sent ahead, they are worked on for AT_ONCE_S; those behind wait for another turn of
the loop. A megabyte can hold 60,000 of them.
"""

import asyncio
import logging
import time
from collections import deque
from concurrent.futures import Executor
from typing import Protocol, cast

from moldau.broker.dispatch import Dispatcher, Peer, chunks_of
from moldau.broker.receive_buffers import INPUT_BYTES, ReceiveBuffers
from moldau.broker.sender import Chunk, Sender
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import COPY_BYTES_MAX, SIZE_BYTES, Backlog, FrameReader
from moldau.requests.pending import PendingAnswer
from moldau.requests.turns import next_turn

log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 32
KEPT_BYTES_MIN = 16 * 1024
"""Less of a frame than this is copied out of where it was read to."""
AT_ONCE_S = 0.001
"""Time for which the requests of one connection are worked on, one after the other, before all others have their turn:
some fifty small ones."""


class ConnectionOwner(Protocol):
    """Counts connections, and refuses those beyond the limits."""

    def opened(self, connection: "Connection") -> bool:
        """Whether the connection may stay."""
        ...

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """Frames in, answers out.

    A whole frame is served where it was read to, so that batches go from there into the log without a copy; what has
    to wait for its turn is taken out.
    """

    __slots__ = (
        "_answers",
        "_backlog",
        "_cold_reads",
        "_dispatch",
        "_in_flight_max",
        "_inputs",
        "_is_at_work",
        "_kept",
        "_kept_bytes",
        "_loop",
        "_owner",
        "_reader",
        "_reading_paused",
        "_sender",
        "_transport",
        "_waits_for_turn",
        "last_active",
        "peer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: ConnectionOwner,
        dispatcher: Dispatcher,
        cold_reads: Executor,
        inputs: ReceiveBuffers,
        listener: str,
        request_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._owner = owner
        self._dispatch = dispatcher.dispatch
        self._cold_reads = cold_reads
        self._inputs = inputs
        self._kept: memoryview | None = None
        self._kept_bytes = 0  # of a frame that is not complete, at the beginning of what is kept
        self._reader = FrameReader(request_bytes_max)
        self._backlog = Backlog(self._reader)  # read, and not taken up yet
        self._answers: deque[list[Chunk] | PendingAnswer] = deque()  # taken up, and not sent yet
        self._in_flight_max = REQUESTS_IN_FLIGHT_MAX  # 0 while the last one is not decided
        self._is_at_work = False  # a request is being dispatched, which may end an earlier one
        self._waits_for_turn = False
        self._reading_paused = False
        self._transport: asyncio.Transport
        self._sender: Sender
        self.peer = Peer(listener)
        self.last_active = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's looks like one and is none
        self._sender = Sender(self._loop, self._transport, self._cold_reads, self._serve)
        address = transport.get_extra_info("peername") or ("unknown", 0)
        self.peer.host, self.peer.port = str(address[0]), int(address[1])
        if not self._owner.opened(self):
            self._transport.abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._backlog.clear()
        for answer in self._answers:
            if isinstance(answer, PendingAnswer):
                answer.cancel()
        self._answers.clear()
        if self._kept is not None:
            self._inputs.give_back(self._kept)
            self._kept = None
        self._sender.close()
        self._owner.closed(self)

    def get_buffer(self, _: int) -> memoryview:
        kept = self._kept
        return self._inputs.shared if kept is None else kept[self._kept_bytes :]

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        kept, self._kept = self._kept, None
        end = count if kept is None else self._kept_bytes + count
        data = (self._inputs.shared if kept is None else kept)[:end]
        try:
            position = self._serve_in_place(data)
            if position < end:
                self._keep(data, position, kept)
        except ProtocolError as error:
            self._refuse(error)
        finally:
            if kept is not None and self._kept is None:
                self._inputs.give_back(kept)

    def _serve_in_place(self, data: memoryview) -> int:
        """Answer the requests that are whole and need not wait; returns where the others begin."""
        reader, answers, sender, position, end = self._reader, self._answers, self._sender, 0, len(data)
        ready: list[bytes] = []  # goes out in one write
        over_at, dispatch, peer = 0.0, self._dispatch, self.peer
        in_flight_max = self._in_flight_max if self._backlog.is_empty else 0
        self._is_at_work = True
        try:
            while position < end and sender.idle and len(answers) + len(ready) < in_flight_max:
                stop = reader.whole(data, position)
                if stop:
                    start = position + SIZE_BYTES
                    is_lent = stop - start > COPY_BYTES_MAX
                    frame = data[start:stop] if is_lent else bytes(data[start:stop])
                    answer = dispatch(frame, peer, is_lent)
                    position = stop
                elif reader.is_collecting:
                    position = reader.collect(data, position)
                    answer = dispatch(reader.take(), peer) if reader.is_complete else None
                else:
                    break
                if type(answer) is bytes and not answers:
                    ready.append(answer)
                    continue  # a fast path is quick, and there are no more than `in_flight_max`: the clock is not asked
                if answer:
                    if ready:
                        self._write(ready)
                    self._answer(answer)
                    in_flight_max = self._in_flight_max
                if position < end:
                    now = time.perf_counter()
                    over_at = over_at or now + AT_ONCE_S
                    if now >= over_at:
                        break
        finally:
            self._is_at_work = False
            self._write(ready)
            if answers:
                self._send_ready()
        return position

    def _write(self, ready: list[bytes]) -> None:
        """Write the answers whose turn it is."""
        if ready:
            self._transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
            ready.clear()

    def _keep(self, data: memoryview, position: int, kept: memoryview | None) -> None:
        """Keep the rest of the input, which is in `kept` already or in the shared memory."""
        rest = len(data) - position
        if (
            rest >= KEPT_BYTES_MIN
            and self._backlog.is_empty
            and self._reader.lacks_some(data, position, INPUT_BYTES)
            and (kept is not None or self._inputs.can_be_kept)
        ):
            self._kept = self._inputs.keep_shared() if kept is None else kept
            self._kept_bytes = rest
            if position:
                self._kept[:rest] = data[position:]
        else:
            self._backlog.add(data[position:])
            self._serve()

    def _answer(self, answer: bytes | list[Chunk] | PendingAnswer) -> None:
        """Answer the request that came last: now, or after the answers before it."""
        answers = self._answers
        if isinstance(answer, PendingAnswer):
            self._await(answer)
        elif answers:
            self._queue(answer)
        else:
            self._sender.send(chunks_of(answer))

    def _queue(self, answer: bytes | list[Chunk]) -> None:
        """Let an answer that is ready wait for those before it."""
        self._answers.append(chunks_of(answer))
        self.peer.last_answer.pending = None

    def _await(self, pending: PendingAnswer) -> None:
        pending.began = self.last_active
        self._answers.append(pending)
        self.peer.last_answer.pending = pending
        if pending.holds_order:
            self._in_flight_max = 0
        pending.when_done(self._done)

    def pause_writing(self) -> None:
        self._sender.transport_full()

    def resume_writing(self) -> None:
        self._sender.transport_empty()

    def fileno(self) -> int:
        """The descriptor of its socket; -1 if that is closed."""
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on or an answer is being sent: never idle then."""
        return bool(self._answers) or not self._sender.idle

    def close(self) -> None:
        """Close after what the transport holds; nothing more is read."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _serve(self) -> None:
        """Take up waiting requests while there is room, send what is ready, and read on or not accordingly."""
        backlog = self._backlog
        if self._is_at_work or self._waits_for_turn or (backlog.is_empty and not self._reading_paused):
            return
        over_at = time.perf_counter() + AT_ONCE_S
        self._is_at_work = True
        try:
            while self._may_go_on():
                if time.perf_counter() >= over_at:
                    self._wait_for_turn()
                    break
                self._take_up(over_at)
        except ProtocolError as error:
            self._refuse(error)
        else:
            if backlog.is_empty == self._reading_paused:
                self._read_on(backlog.is_empty)
        finally:
            self._is_at_work = False

    def _may_go_on(self) -> bool:
        return not self._backlog.is_empty and self._sender.idle and len(self._answers) < self._in_flight_max

    def _take_up(self, over_at: float) -> None:
        """Work on as many waiting requests as there is room and time for; what is ready goes out in one write."""
        answers, ready = self._answers, list[Chunk]()
        while len(answers) < self._in_flight_max and (frame := self._backlog.take()) is not None:
            answer = self._dispatch(frame, self.peer)
            if isinstance(answer, PendingAnswer):
                self._await(answer)
            elif answer:
                if answers:
                    self._queue(answer)
                else:
                    ready += chunks_of(answer)
            if time.perf_counter() >= over_at:
                break
        if ready:
            self._sender.send(ready)
        if answers:
            self._send_ready()

    def _wait_for_turn(self) -> None:
        self._waits_for_turn = True
        next_turn().add_done_callback(self._turn_came)

    def _turn_came(self, _: object) -> None:
        self._waits_for_turn = False
        self._serve()

    def _read_on(self, on: bool) -> None:
        if not self._transport.is_closing():
            self._reading_paused = not on
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def _done(self, pending: PendingAnswer) -> None:
        if pending.holds_order:
            self._in_flight_max = REQUESTS_IN_FLIGHT_MAX
        if pending.failed:
            self._transport.abort()
        elif self._is_at_work:
            return  # it was ended by the request that is being dispatched: nothing may pass that one
        elif self._answers and self._answers[0] is pending:
            self._send_ready()
            self._serve()
        elif pending.holds_order:
            self._serve()

    def _send_ready(self) -> None:
        """Send the answers at the head of the queue that are ready."""
        answers, ready = self._answers, list[Chunk]()
        while answers:
            chunks = answers[0].chunks if isinstance(answers[0], PendingAnswer) else answers[0]
            if chunks is None:
                break
            ready += chunks
            answers.popleft()
        if not answers:
            self.peer.last_answer.pending = None  # or it would be kept, with its records, while the client rests
        if ready:
            self._sender.send(ready)

    def _refuse(self, error: ProtocolError) -> None:
        log.warning("closing the connection of %s: %s", self.peer, error)
        self._backlog.clear()
        self._transport.abort()
