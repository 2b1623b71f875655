"""Sockets to every other session of the database: a byte means "look into the database", the end means "somebody left".

Law: a link carries no facts. Changes stand in the change log, and the session files show who is alive, so a byte that
does not fit into a full buffer, or one too many, does no harm. The later of two sessions makes the connection: it finds
the earlier one in the database, with a socket that was there before the row.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

_BACKLOG = 128
_POKE = b"\0"
_READ_BYTES = 4096


class Callbacks(NamedTuple):
    """Callbacks for the events of a link."""

    poked: Callable[[], None]
    """Called when another session has committed something."""
    joined: Callable[[], None]
    left: Callable[[], None]


class Links:
    """Our own session's socket and its connections; deaf until `attach`."""

    def __init__(self, path: str) -> None:
        self._listening = _unix_socket()
        self._listening.bind(path)
        self._listening.listen(_BACKLOG)
        self._links: set[socket.socket] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callbacks = Callbacks(*[lambda: None] * 3)

    def connect(self, paths: Iterable[str]) -> None:
        """Link with sessions that were there first. A session that cannot be reached has died, or hears us later."""
        for path in paths:
            link = _unix_socket()
            try:
                link.connect(path)
            except OSError:
                link.close()
            else:
                self._add(link)

    def attach(self, loop: asyncio.AbstractEventLoop, callbacks: Callbacks) -> None:
        """Call `callbacks` in the loop from now on."""
        self._loop, self._callbacks = loop, callbacks
        loop.add_reader(self._listening, self._accept)
        for link in self._links:
            loop.add_reader(link, self._read, link)

    def poke(self) -> None:
        """Send all others the byte that means that something was committed."""
        for link in self._links:
            _poke(link)

    def close(self) -> None:
        for each in (self._listening, *self._links):
            self._deafen(each)
            each.close()
        self._links.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _address = self._listening.accept()
                self._add(link)
                _poke(link)  # for what was committed before we could know of it
        self._callbacks.joined()

    def _add(self, link: socket.socket) -> None:
        link.setblocking(False)
        self._links.add(link)
        if self._loop is not None:
            self._loop.add_reader(link, self._read, link)

    def _read(self, link: socket.socket) -> None:
        try:
            ended = not link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if not ended:
            self._callbacks.poked()
            return
        self._deafen(link)
        self._links.discard(link)
        link.close()
        self._callbacks.left()

    def _deafen(self, each: socket.socket) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(each)


def _unix_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


def _poke(link: socket.socket) -> None:
    with suppress(OSError):
        link.send(_POKE)
