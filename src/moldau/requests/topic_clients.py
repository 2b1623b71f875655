"""Clients that write topics and read them, as this broker sees them: a picture of who is connected to whom.

Law: it costs an element of a set, and only for a request that goes to a handler, as a fast path serves what a handler
has served to the same connection before. Clients choose their names, so the sets have a bound; a scrape empties them.
"""

from typing import Final, NamedTuple

CLIENT_ID_MAX: Final = 200
NOTED_MAX: Final = 10_000
"""Clients of topics between two scrapes; those behind that are not noted."""


class TopicClient(NamedTuple):
    """A client of a topic."""

    topic: str
    client_id: str
    host: str


class TopicClients:
    """Clients that were seen since somebody took them."""

    __slots__ = ("_readers", "_writers")

    def __init__(self) -> None:
        self._writers: set[TopicClient] = set()
        self._readers: set[TopicClient] = set()

    def wrote(self, topic: str, client_id: str | None, host: str) -> None:
        """Note that a client has written a topic."""
        if len(self._writers) < NOTED_MAX:
            self._writers.add(TopicClient(topic, short(client_id), host))

    def read(self, topic: str, client_id: str | None, host: str) -> None:
        """Note that a client reads a topic."""
        if len(self._readers) < NOTED_MAX:
            self._readers.add(TopicClient(topic, short(client_id), host))

    def taken(self) -> tuple[set[TopicClient], set[TopicClient]]:
        """Writers and readers that were noted since the last time."""
        writers, readers = self._writers, self._readers
        self._writers, self._readers = set(), set()
        return writers, readers


def short(client_id: str | None) -> str:
    """The id as it is kept: one on the wire may have 32,767 bytes."""
    return "" if client_id is None else client_id[:CLIENT_ID_MAX]
