"""The port of `metrics.listener`: just enough HTTP for a scrape and for probes.

Law: whoever connects costs little. A connection has one request of at most HEAD_BYTES_MAX, a deadline for asking and
one for taking the answer, and is closed behind it; there are CONNECTIONS_MAX at a time. Who connects and does not ask
makes room for the next one, so that nobody keeps probes away by being slow. Nothing that is asked here changes
anything. Where only this machine may ask, a name that leads here is not enough: a page of the web could have one for
127.0.0.1, and read what a browser on this machine gets.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, cast

from moldau.core.listeners import Address

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 16
ASKING_S_MAX = 5.0
ANSWERING_S_MAX = 30.0
PLAIN = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
NOT_READY_TEXT = b"the broker is starting\n"
END_OF_HEAD = b"\r\n\r\n"


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    content_type: str = PLAIN


class Question(NamedTuple):
    """A request that was understood."""

    path: str
    accept: str
    wants_body: bool
    host: str = ""
    """The name by which this address was found, in lower case; empty: it is not told."""


Answering = Callable[[Question], Coroutine[Any, Any, Page]]


class MetricsListener:
    """Accepts connections, and lets `answering` answer once the broker has started."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._answering: Answering | None = None
        self._connections: dict[_Exchange, None] = {}  # the oldest first
        self._names: tuple[str, ...] | None = None
        """Names by which it may be asked, where only this machine may; None: any."""
        self.address: Address | None = None
        """Address at which it listens, with the port that the system chose where any would do."""

    async def bind(self, address: Address) -> None:
        """Listen, from now on. A port that another program has is no reason not to start: a broker that nobody watches
        is better than none, and whoever watches misses it."""
        try:
            self._server = await self._loop.create_server(lambda: _Exchange(self._loop, self), *address.to_bind())
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            log.error("metrics are not served: the port of metrics.listener=%s is in use", address)
            return
        bound, port = self._server.sockets[0].getsockname()[:2]
        self._names = ("localhost", address.host.lower()) if bound == "::1" or bound.startswith("127.") else None
        self.address = address._replace(port=int(port))

    def serve(self, answering: Answering) -> None:
        """Answer from now on: the broker has started."""
        self._answering = answering
        if self.address is not None:
            log.info("metrics are served at http://%s/metrics", self.address)

    def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for each in tuple(self._connections):
            each.abort()

    def opened(self, exchange: "_Exchange") -> bool:
        """Count a connection; False if it is one too many, and all others are being answered."""
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next((each for each in self._connections if each.is_asking), None)
            if oldest is None:
                return False
            self.closed(oldest)
            oldest.abort()
        self._connections[exchange] = None
        return True

    def closed(self, exchange: "_Exchange") -> None:
        self._connections.pop(exchange, None)

    async def answer(self, question: Question) -> Page:
        """The page that a question is about."""
        if question.path == "/healthz":  # that somebody answers is the answer
            return Page(200, b"ok\n")
        if question.path not in ("/metrics", "/readyz", "/clients"):
            return Page(404, b"there are /metrics, /clients, /healthz and /readyz\n")
        if self._names is not None and not _is_number(question.host) and question.host not in self._names:
            return Page(421, b"ask for this by an address, or as localhost\n")
        if self._answering is None:
            return Page(503, NOT_READY_TEXT)
        return await self._answering(question)


class _Exchange(asyncio.Protocol):
    """One connection: a request, and its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: MetricsListener) -> None:
        self._loop = loop
        self._owner = owner
        self._head = b""
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._owner.opened(self):
            self._transport.abort()
            return
        self._deadline = self._loop.call_later(ASKING_S_MAX, self.abort)

    def connection_lost(self, _: Exception | None) -> None:
        self._owner.closed(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()

    @property
    def is_asking(self) -> bool:
        """Whether its request is not there yet."""
        return self._task is None and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._task is not None or self._transport.is_closing():
            return  # there is one request; what follows it is not read
        self._head += data
        end = self._head.find(END_OF_HEAD)
        if max(end, 0) > HEAD_BYTES_MAX or (end < 0 and len(self._head) > HEAD_BYTES_MAX):
            self._end_with(Page(431, b"the request is too long\n"))
        elif end >= 0:
            self._transport.pause_reading()
            self._begin(parse_head(self._head[:end]))

    def _begin(self, question: Question | Page) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(ANSWERING_S_MAX, self.abort)
        if isinstance(question, Page):
            self._end_with(question)
        else:
            self._task = self._loop.create_task(self._answer(question))

    async def _answer(self, question: Question) -> None:
        try:
            page = await self._owner.answer(question)
        except Exception:
            log.exception("%s failed", question.path)
            page = Page(500, b"an error of the broker: its log says more\n")
        self._end_with(page, with_body=question.wants_body)

    def _end_with(self, page: Page, *, with_body: bool = True) -> None:
        """Write, and close when the peer has it."""
        allow = "Allow: GET, HEAD\r\n" if page.status == 405 else ""
        head = (
            f"HTTP/1.1 {page.status} {REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n{allow}Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode("ascii") + (page.body if with_body else b""))
        self._transport.close()


def parse_head(head: bytes) -> Question | Page:
    """The question in a request's head, or the page that says what is wrong with it."""
    request_line, *lines = head.decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return Page(400, b"this is no request of HTTP/1\n")
    if words[0] not in ("GET", "HEAD"):
        return Page(405, b"there is only reading here\n")
    accept: list[str] = []
    host = ""
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return Page(400, b"a header is not `name: value`\n")
        if name.lower() == "accept":
            accept.append(value.strip())
        elif name.lower() == "host":
            host = value.strip().lower()
    if not host.startswith("["):
        host = host.partition(":")[0]
    return Question(words[1].partition("?")[0], ",".join(accept), words[0] == "GET", host)


def _is_number(host: str) -> bool:
    """Whether a host is told by its address, or not at all: no name of the web ends with a number."""
    return host.startswith("[") or host.replace(".", "").isdigit() or not host
