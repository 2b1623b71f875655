"""Clients by the topics that they write and read, for a graph of who talks to whom.

A client is told as long as it is connected, and an hour longer. Clients choose their names, so that their number has a
bound: beyond it those go first that were noted longest ago.
"""

from collections.abc import Collection
from typing import Final

from moldau.broker.metrics.exposition import Family, gauge, label_text
from moldau.broker.metrics.observed import Observed
from moldau.protocol.apis import FETCH, PRODUCE
from moldau.protocol.codec import Steps
from moldau.requests.topic_clients import TopicClient, short

TOLD_MAX: Final = 2_000
"""Clients of topics that a scrape tells, writers and readers each."""
KEPT_MS: Final = 3_600_000

Connected = set[tuple[str, str]]
"""Clients with a connection, by id and host."""


class TopologyMemory:
    """Clients that scrapes have seen, and when they were noted last."""

    def __init__(self) -> None:
        self._writers: dict[TopicClient, int] = {}
        self._readers: dict[TopicClient, int] = {}

    def families(self, observed: Observed) -> Steps[list[Family]]:
        """Families of writers and readers."""
        now_ms, topics = observed.parts.clock.now_ms(), observed.parts.metadata.image.topics
        connected: dict[int, Connected] = {PRODUCE: set(), FETCH: set()}
        for peer in observed.listeners.peers():
            for known in tuple(peer.introductions.values()):
                if known.route.key in connected:
                    connected[known.route.key].add((short(known.context.client_id), peer.host))
            yield
        writers, readers = observed.parts.topic_clients.taken()
        self._writers = _merged(self._writers, writers, connected[PRODUCE], now_ms)
        self._readers = _merged(self._readers, readers, connected[FETCH], now_ms)
        yield
        families = []
        for name, does, clients in (("writer", "writes", self._writers), ("reader", "reads", self._readers)):
            family = gauge(f"moldau_topic_{name}", f"1 for a client that {does} a topic by way of this broker.")
            for each in clients:
                if each.topic in topics:
                    family.add(1, label_text(topic=each.topic, client_id=each.client_id, host=each.host))
            families.append(family)
            yield
        return families


def _merged(
    before: dict[TopicClient, int], noted: Collection[TopicClient], connected: Connected, now_ms: int
) -> dict[TopicClient, int]:
    """Clients with the time at which they were noted or connected last, in the order of that time."""
    seen = {
        each: now_ms if (each.client_id, each.host) in connected else at_ms
        for each, at_ms in {**before, **dict.fromkeys(noted, now_ms)}.items()
    }
    kept = [(each, at_ms) for each, at_ms in seen.items() if now_ms - at_ms < KEPT_MS]
    return dict(sorted(kept, key=lambda item: item[1])[-TOLD_MAX:])
