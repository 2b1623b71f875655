"""Links between brokers that can be cut, healed and delayed: a proxy stands in front of each broker.

Law: a cut link loses nothing and closes nothing, as a network that drops packets: bytes wait on both sides, new
connections are accepted and wait too, and what was under way arrives when the link is healed, however late.
`break_` is the other kind of trouble: connections end at once.
Who opened a connection is read from the client id in its first request; where the protocol has none (ZooKeeper), each
who connects gets a proxy of its own.
"""

import asyncio
import re
import threading
from collections.abc import Coroutine
from contextlib import suppress
from struct import Struct
from typing import Any, TypeVar

from moldau.testing.ports import HOST

T = TypeVar("T")

CHUNK_BYTES = 65_536
_HEAD = Struct(">ihhih")  # size, api key, version, correlation id, length of the client id
_PEER = re.compile(r"broker-(\d+)-")
NOBODY = "?"
"""Name for a client that opens a connection without saying which broker it is. Its links can be cut as well."""


class _Link:
    """Link that all bytes from one broker to another go through."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_s = 0.0
        self.writers: set[asyncio.StreamWriter] = set()


class Links:
    """The links of a cluster. Brokers are named by their ids as text; methods may be called from any thread."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, str], _Link] = {}
        self._targets: dict[str, tuple[str, int]] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    # --- the places

    def open(self, to: str, *, source: str | None = None) -> int:
        """The port of a new proxy in front of `to`; `source` is the client that connects there, if there is only
        one."""
        return self._run(self._open(to, source))

    def point(self, to: str, port: int, host: str = HOST) -> None:
        """Set the address at which `to` really listens."""
        self._targets[to] = (host, port)

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- the trouble

    def cut(self, source: str, to: str) -> None:
        """Let nothing pass on connections that `source` opened, or opens, to `to`."""
        self._call(lambda link: link.is_open.clear(), source, to)

    def heal(self, source: str, to: str) -> None:
        """End cuts and delays."""
        self._call(_heal, source, to)

    def heal_all(self) -> None:
        for source, to in list(self._links):
            self.heal(source, to)

    def delay(self, source: str, to: str, milliseconds: float) -> None:
        """Delay every piece by this much, each way."""
        self._call(lambda link: setattr(link, "delay_s", milliseconds / 1000), source, to)

    def break_(self, source: str, to: str) -> None:
        """End the open connections."""
        self._call(_break, source, to)

    def _call(self, work: Any, source: str, to: str) -> None:
        async def run() -> None:
            work(self._link(source, to))

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # --- in the loop

    async def _open(self, to: str, source: str | None) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer, to, source))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(accepted, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _link(self, source: str, to: str) -> _Link:
        return self._links.setdefault((source, to), _Link())

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str, source: str | None
    ) -> None:
        """Serve one connection, from its first byte to its end."""
        first = b""
        with suppress(OSError, asyncio.IncompleteReadError, ValueError):
            if source is None:
                first = await _first_bytes(reader)
                source = _peer(first)
            link = self._link(source, to)
            await link.is_open.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._targets[to])
            ends = (writer, far_writer)
            link.writers.update(ends)
            try:
                far_writer.write(first)
                await _both(_pump(link, reader, far_writer), _pump(link, far_reader, writer))
            finally:
                link.writers.difference_update(ends)
                far_writer.close()
        writer.close()


async def _both(*pumps: Coroutine[Any, Any, None]) -> None:
    """Copy both ways until either direction has ended."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK_BYTES):
        if link.delay_s:
            await asyncio.sleep(link.delay_s)
        await link.is_open.wait()
        writer.write(data)
        await writer.drain()
    await link.is_open.wait()  # the end of a connection does not pass either


async def _first_bytes(reader: asyncio.StreamReader) -> bytes:
    """The first request up to its client id."""
    head = await reader.readexactly(_HEAD.size)
    length = _HEAD.unpack(head)[-1]
    return head + await reader.readexactly(max(0, length))


def _peer(first: bytes) -> str:
    found = _PEER.search(first[_HEAD.size :].decode(errors="replace"))
    return found[1] if found else NOBODY


def _heal(link: _Link) -> None:
    link.delay_s = 0.0
    link.is_open.set()


def _break(link: _Link) -> None:
    for writer in tuple(link.writers):
        writer.transport.abort()
