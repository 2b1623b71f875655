"""Fetches what this broker follows: one connection to each leader, shared by all partitions that it leads.

The law: once `stop` has returned, nothing more is appended to that log by us. All of it happens on the loop's thread
and in callbacks, and whatever arrives is taken only for the very object that asked for it.
"""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from moldau.cluster.image import ClusterImage
from moldau.core.ids import TopicPartition
from moldau.replication.follower import FollowedPartition
from moldau.requests.parts import Parts

if TYPE_CHECKING:  # imported with the first partition that is followed: a broker alone starts without it
    from moldau.broker.leader_fetcher import LeaderFetcher
    from moldau.replication.fetch_plan import Fetch


class _Following(NamedTuple):
    leader: "LeaderFetcher"
    fetch: "Fetch"


class Fetchers:
    """Fetchers of all leaders, and the one that each followed partition is fetched by."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts) -> None:
        self._loop = loop
        self._parts = parts
        self._leaders: dict[int, LeaderFetcher] = {}
        self._following: dict[TopicPartition, _Following] = {}
        self._closed = False

    def follow(self, partition: FollowedPartition) -> None:
        """Fetch for `partition` from its leader from now on; a new object for every leader and epoch."""
        from moldau.broker.leader_fetcher import LeaderFetcher  # see above
        from moldau.replication.fetch_plan import Fetch

        self.stop(partition.topic_partition)
        if self._closed:
            return
        leader = self._leaders.get(partition.leader_id)
        if leader is None:
            leader = LeaderFetcher(self._loop, self._parts, partition.leader_id)
            self._leaders[partition.leader_id] = leader
        fetch = Fetch(partition)
        self._following[partition.topic_partition] = _Following(leader, fetch)
        leader.add(fetch)

    def stop(self, topic_partition: TopicPartition) -> None:
        """Append nothing more to this partition; an answer on its way is dropped."""
        following = self._following.pop(topic_partition, None)
        if following is not None:
            following.leader.remove(following.fetch)

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Follow leaders to their new addresses; name everything anew to them if we are registered anew."""
        if old.brokers is new.brokers:
            return
        own = self._parts.broker_id
        before, now = old.brokers.get(own), new.brokers.get(own)
        if now is not None and (before is None or before.epoch != now.epoch):
            for leader in self._leaders.values():
                leader.start_over()
        for leader in self._leaders.values():
            leader.address_changed(new)

    async def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        self._following.clear()
        for leader in self._leaders.values():
            leader.close()
