"""Brokers without logs or sockets, each with its own session: what the controller needs of them."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from moldau.broker.controller import Controller
from moldau.broker.metadata_refresh import MetadataRefresh
from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage, PartitionImage
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore, Operation, StoreUnavailable
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.core.dynamic_config import DynamicConfig

DEADLINE_S = 30
ids = itertools.count(1)


class LosesAnswers:
    """Stands in for a store's `multi`: it happens, and the answer is lost, so often as it is told."""

    def __init__(self, store: MetadataStore) -> None:
        self._multi, self.left = store.multi, 0

    async def __call__(self, operations: Sequence[Operation]) -> list[str | int | None]:
        results = await self._multi(operations)
        if self.left:
            self.left -= 1
            raise StoreUnavailable("/")
        return results


class Member:
    """What the controller needs of a broker."""

    def __init__(self, store: MetadataStore, id_: int) -> None:
        loop = asyncio.get_running_loop()
        self.id = id_
        self.store = store
        self.lost_answers = LosesAnswers(store)
        store.multi = self.lost_answers  # type: ignore[method-assign]
        self.metadata = Metadata(self.store, ManualClock(), lambda size: next(ids).to_bytes(size), self._stale)
        self.refreshing = MetadataRefresh(loop, self.metadata.catch_up)
        config = BrokerConfig.parse({})[0]
        self.parts = SimpleNamespace(
            metadata=self.metadata, broker_id=id_, config=config, dynamic_config=DynamicConfig(config)
        )
        self.controller = Controller(loop, self.parts)  # type: ignore[arg-type]  # what it uses of Parts

    def _stale(self) -> None:
        self.refreshing.stale()

    async def start(self) -> None:
        await self.metadata.load()
        self.metadata.subscribe(self.controller.image_changed)
        await self.metadata.register_broker(BrokerInfo(self.id, None, ()))
        self.controller.registered()

    async def stop(self) -> None:
        await self.controller.close()
        await self.kill()

    async def kill(self) -> None:
        await self.refreshing.close()
        await self.store.close()

    async def wait(self, condition: Callable[[ClusterImage], bool]) -> ClusterImage:
        changed = asyncio.Event()
        end = self.metadata.subscribe(lambda _old, _new: changed.set())
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition(self.metadata.image):
                    await changed.wait()
                    changed.clear()
        finally:
            end()
        return self.metadata.image

    def states(self, topic: str = "t") -> tuple[PartitionImage, ...]:
        return self.metadata.image.topics[topic].partitions


class Members:
    """Started in order, so that the first is the controller."""

    def __init__(self, open_store: Callable[[], MetadataStore]) -> None:
        self._open_store = open_store
        self.all: list[Member] = []

    async def start(self, count: int) -> list[Member]:
        for id_ in range(1, count + 1):
            member = Member(self._open_store(), id_)
            self.all.append(member)
            await member.start()
            await member.wait(lambda image: image.controller_id != NO_LEADER)
        for member in self.all:
            await member.wait(lambda image: len(image.brokers) == count)
        return self.all
