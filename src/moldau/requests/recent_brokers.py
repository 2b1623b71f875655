"""Brokers that died a moment ago, which clients are still told of.

librdkafka moves a partition from its old leader to the new one through the old one's thread. If it learns of the new
leader and of the old one's end in the same answer, that thread is gone before it has handed over, and the partition
waits for a timer of a second (at about one kill in six). So a dead broker is listed for a little while after its
partitions have moved, as one that shuts down in order is. Only Metadata lists it: nobody is elected, placed or
counted by this.
"""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.cluster.image import BrokerInfo, ClusterImage
from moldau.core.clock import Clock

LISTED_MS = 3000


class _Departure(NamedTuple):
    broker: BrokerInfo
    at_ms: int


class RecentBrokers:
    """Listens to the image; `listed` are those that clients should still hear of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._departures: dict[int, _Departure] = {}

    def note(self, old: ClusterImage, new: ClusterImage) -> None:
        """An image listener."""
        if old.brokers is new.brokers:
            return
        self._departures = {id_: gone for id_, gone in self._departures.items() if self._is_recent(gone)}
        for id_ in old.brokers.keys() - new.brokers.keys():
            if not old.brokers[id_].shutting_down:  # such a one has handed over before it left
                self._departures[id_] = _Departure(old.brokers[id_], self._clock.monotonic_ms())

    def listed(self, image: ClusterImage) -> Iterator[BrokerInfo]:
        for id_, gone in self._departures.items():
            if id_ not in image.brokers and self._is_recent(gone):
                yield gone.broker

    def _is_recent(self, gone: _Departure) -> bool:
        return self._clock.monotonic_ms() - gone.at_ms < LISTED_MS
