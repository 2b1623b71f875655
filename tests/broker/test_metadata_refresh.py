"""A part of the broker that could not follow the image is told again, ever less often, until it can."""

import asyncio

import pytest

from moldau.broker import metadata_refresh as refreshing
from moldau.broker.metadata_refresh import MetadataRefresh
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import Metadata
from moldau.core.clock import ManualClock

FAILURES = 5


def test_a_listener_that_failed_is_told_until_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "RETRY_S", 0.0001)
    told: list[str] = []

    async def main() -> None:
        store = EmbeddedStore(":memory:")
        loop, follows = asyncio.get_running_loop(), asyncio.Event()
        reads = MetadataRefresh(loop, lambda: metadata.catch_up())
        metadata = Metadata(store, ManualClock(), lambda size: bytes([7] * size), reads.stale)
        await metadata.load()

        def listener(_old: ClusterImage, new: ClusterImage) -> None:
            told.append(",".join(new.topics))
            if len(told) <= FAILURES:
                raise KeyError("a partition that is not there")
            follows.set()

        metadata.subscribe(listener)
        topic = await metadata.create_topic("events", [[1]])
        assert topic.name == "events", "whoever made the change does not hear of it"
        await asyncio.wait_for(follows.wait(), 10)
        await reads.close()
        await store.close()

    asyncio.run(main())
    assert told == ["events"] * (FAILURES + 1)
