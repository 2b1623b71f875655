"""One client's connection.

Answers leave in the order their requests came: clients match them by position. A request is taken up as soon as it is
read (several may be waiting for a sync or for data at once), but never while an earlier answer is still stuck in
front of a client that does not read, and never more than REQUESTS_IN_FLIGHT_MAX at a time: so a connection's memory
is bounded whatever its client does.
"""

import asyncio
import logging
from collections import deque
from concurrent.futures import Executor
from typing import Protocol, cast

from moldau.broker.dispatch import Answer, Dispatcher, Peer, chunks_of
from moldau.broker.sender import Chunk, Sender
from moldau.handlers.later import Later
from moldau.protocol.errors import ProtocolError
from moldau.protocol.framing import COPY_BYTES_MAX, SIZE_BYTES, Frame, FrameReader

log = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT_MAX = 32
INPUT_BYTES = 256 * 1024
"""Read at a time at most; a produce to a few partitions fits."""


def new_input() -> memoryview:
    """What the connections of one loop read into, one after the other."""
    return memoryview(bytearray(INPUT_BYTES))


class ConnectionOwner(Protocol):
    """Who counts connections and refuses those too many."""

    def opened(self, connection: "Connection") -> bool:
        """Whether the connection may stay."""
        ...

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """Frames in, answers out.

    A whole frame is served where it was read to, so that batches go from there into the log without a copy; only what
    is not complete, or has to wait, is taken out.
    """

    __slots__ = (
        "_answers",
        "_cold_reads",
        "_dispatch",
        "_frames",
        "_input",
        "_loop",
        "_owner",
        "_reader",
        "_reading_paused",
        "_sender",
        "_transport",
        "last_active",
        "peer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: ConnectionOwner,
        dispatcher: Dispatcher,
        cold_reads: Executor,
        listener: str,
        request_bytes_max: int,
        shared_input: memoryview,
    ) -> None:
        self._loop = loop
        self._owner = owner
        self._dispatch = dispatcher.dispatch
        self._cold_reads = cold_reads
        self._input = shared_input
        self._reader = FrameReader(request_bytes_max)
        self._frames: deque[Frame] = deque()  # read, and not taken up yet
        self._answers: deque[list[Chunk] | Later] = deque()  # taken up, and not sent yet
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
        self._frames.clear()
        for answer in self._answers:
            if isinstance(answer, Later):
                answer.cancel()
        self._answers.clear()
        self._sender.close()
        self._owner.closed(self)

    def get_buffer(self, _: int) -> memoryview:
        return self._input

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        data, position = self._input[:count], 0
        try:
            while not self._frames and not self._answers and self._sender.idle:
                stop = self._reader.whole(data, position)
                if not stop:
                    break
                start, position = position + SIZE_BYTES, stop
                is_lent = stop - start > COPY_BYTES_MAX
                frame = data[start:stop] if is_lent else bytes(data[start:stop])
                self._answer_alone(self._dispatch(frame, self.peer, is_lent=is_lent))
            if position == count:
                return
            self._frames.extend(self._reader.feed(bytes(data[position:])))
        except ProtocolError as error:
            self._refuse(error)
        else:
            self._serve()

    def _answer_alone(self, answer: Answer) -> None:
        """The common case: the answer to a request with nothing before it."""
        if type(answer) is bytes:
            self._transport.write(answer)
        elif isinstance(answer, Later):
            self._answers.append(answer)
            answer.when_done(self._later_done)
        elif answer is not None:
            self._sender.send(chunks_of(answer))

    def pause_writing(self) -> None:
        self._sender.transport_full()

    def resume_writing(self) -> None:
        self._sender.transport_empty()

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
        frames = self._frames
        try:
            while frames and self._sender.idle and len(self._answers) < REQUESTS_IN_FLIGHT_MAX:
                self._take_up()
        except ProtocolError as error:
            self._refuse(error)
        else:
            if bool(frames) != self._reading_paused:
                self._read_on(not frames)

    def _take_up(self) -> None:
        """Work on as many waiting requests as there is room for; what is ready goes out in one write."""
        frames, answers, ready = self._frames, self._answers, list[Chunk]()
        while frames and len(answers) < REQUESTS_IN_FLIGHT_MAX:
            answer = self._dispatch(frames.popleft(), self.peer)
            if isinstance(answer, Later):
                answers.append(answer)
                answer.when_done(self._later_done)
            elif answer is not None:
                chunks = chunks_of(answer)
                if answers:
                    answers.append(chunks)
                else:
                    ready += chunks
        if ready:
            self._sender.send(ready)

    def _read_on(self, on: bool) -> None:
        if not self._transport.is_closing():
            self._reading_paused = not on
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def _later_done(self, later: Later) -> None:
        if later.failed:
            self._transport.abort()
        elif self._answers and self._answers[0] is later:
            self._send_ready()
            self._serve()

    def _send_ready(self) -> None:
        """Send the answers at the head of the queue that are ready."""
        answers, ready = self._answers, list[Chunk]()
        while answers:
            chunks = answers[0].chunks if isinstance(answers[0], Later) else answers[0]
            if chunks is None:
                break
            ready += chunks
            answers.popleft()
        self._sender.send(ready)

    def _refuse(self, error: ProtocolError) -> None:
        log.warning("closing the connection of %s: %s", self.peer, error)
        self._frames.clear()
        self._transport.abort()
