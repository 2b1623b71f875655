"""A reassignment that is called off while its new replica is let into the in-sync replicas leaves nothing behind."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from moldau.cluster.changes import Change, planned
from moldau.cluster.image import PartitionImage
from moldau.cluster.metadata import NO_STARTS, Metadata
from moldau.cluster.reassignment import begin, cancel
from moldau.cluster.store import Operation, StoreUnavailable
from tests.broker.test_lifecycle import Brokers, brokers, in_loop, until


class Unanswered:
    """Stands in for `Metadata.write`: who is to be let in waits, and then nobody knows whether it happened."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._write = metadata.write
        self.is_asked, self.is_over = asyncio.Event(), asyncio.Event()
        metadata.write = self  # type: ignore[method-assign]

    async def __call__(
        self, changes: Sequence[Change], guards: Sequence[Operation] = (), starts: Mapping[int, int] = NO_STARTS
    ) -> None:
        if not starts:
            await self._write(changes, guards)
            return
        self.is_asked.set()
        await self.is_over.wait()
        raise StoreUnavailable("/")

    def end(self) -> None:
        self._metadata.write = self._write  # type: ignore[method-assign]
        self.is_over.set()


async def change(cluster: Brokers, broker: int, state: PartitionImage) -> None:
    metadata = cluster.running[broker].services.metadata
    await metadata.write(planned(metadata.image.topics["events"], {0: state}))
    await cluster.until_state(lambda now: now.replicas == state.replicas)


@in_loop
async def test_a_reassignment_called_off_while_the_new_replica_is_let_in_leaves_nothing_behind(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, partitions=2)
        two = cluster.running[2].services.metadata
        store = Unanswered(cluster.running[1].services.metadata)
        await change(cluster, 2, begin(two.image, "events", 0, (1, 2, 3)))
        await store.is_asked.wait()
        await change(cluster, 2, cancel(two.image, "events", 0))
        store.end()
        cluster.produce(1, 5)
        await until(lambda: cluster.led(1).high_watermark == 5)
        await until(lambda: cluster.led(1).maximal_isr == {1, 2})
        await cluster.stop(2)
        await cluster.start(2)
        for index in range(2):
            await cluster.until_state(lambda state: set(state.isr) == {1, 2}, index)
