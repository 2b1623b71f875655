"""Brokers that come, go and change topics at random: all agree in the end, and nobody saw two leaders of one epoch."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from moldau.cluster import reassignment
from moldau.cluster.changes import StateChange, planned
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage
from moldau.cluster.metadata import Conflict, Metadata
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ApiError
from tests.broker.controller_members import Member
from tests.cluster.store_contract import eventually

BROKERS = 4
STEPS = 60
TOPICS = ("a", "b", "c")


class History:
    """What the images of all brokers said, one after the other."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._leaders: dict[tuple[bytes, int, int], int] = {}

    def watch(self, metadata: Metadata) -> None:
        metadata.subscribe(self._note)

    def _note(self, old: ClusterImage, new: ClusterImage) -> None:
        for topic in new.topics.values():
            before = old.topic_by_id(topic.topic_id)
            known = before.partitions if before is not None else ()
            for index, state in enumerate(topic.partitions):
                first = self._leaders.setdefault((topic.topic_id, index, state.leader_epoch), state.leader)
                if first != state.leader and state.leader_epoch >= 0:
                    self.problems.append(f"{first} and {state.leader} both led {topic.name}-{index}: {state}")
                if index < len(known) and state.partition_epoch < known[index].partition_epoch:
                    self.problems.append(f"{topic.name}-{index} went back from {known[index]} to {state}")
                if not state.isr and state.partition_epoch >= 0:
                    self.problems.append(f"{topic.name}-{index} has no replica in sync: {state}")


class Schedule:
    """One seed's worth of events."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.context = f"seed {seed}"
        self._path = str(directory / f"metadata-{seed}.sqlite")
        self._history = History()
        self.members: dict[int, Member] = {}

    async def run(self) -> None:
        for id_ in range(1, BROKERS + 1):
            await self.start(id_)
        acts: list[Callable[[], Awaitable[None]]] = [
            *(self.create, self.delete, self.grow, self.move, self.move, self.call_off),
            *(self.join, self.join, self.join, self.shut_down, self.kill_or_start, self.kill_or_start, self.rebalance),
        ]
        for _step in range(STEPS):
            with suppress(ApiError, Conflict):
                await self.random.choice(acts)()
            for _turn in range(self.random.randint(0, 5)):
                await asyncio.sleep(0)
        await self.check_agreement()
        assert self._history.problems == [], self.context

    async def start(self, id_: int) -> None:
        member = Member(EmbeddedStore(self._path, durable=False), id_)
        self._history.watch(member.metadata)
        self.members[id_] = member
        await member.start()

    def anybody(self) -> Member:
        return self.random.choice(list(self.members.values()))

    def replicas(self) -> list[int]:
        return self.random.sample(range(1, BROKERS + 1), self.random.randint(1, 3))

    async def create(self) -> None:
        await self.anybody().metadata.create_topic(self.random.choice(TOPICS), [self.replicas() for _ in range(3)])

    async def delete(self) -> None:
        if self.random.random() < 0.5:
            await self.anybody().metadata.delete_topic(self.random.choice(TOPICS))

    async def grow(self) -> None:
        await self.anybody().metadata.add_partitions(self.random.choice(TOPICS), [self.replicas()])

    async def move(self) -> None:
        await self.alter(lambda image, topic: reassignment.begin(image, topic, 0, self.replicas()))

    async def call_off(self) -> None:
        await self.alter(lambda image, topic: reassignment.cancel(image, topic, 0))

    async def alter(self, decide: Callable[[ClusterImage, str], object]) -> None:
        metadata, topic = self.anybody().metadata, self.random.choice(TOPICS)
        state = decide(metadata.image, topic)
        changes = planned(metadata.image.topics[topic], {0: state})  # type: ignore[dict-item]
        if changes:
            await metadata.write(changes)

    async def join(self) -> None:
        """Leaders take all replicas that are alive into the ISR."""
        metadata = self.anybody().metadata
        image = metadata.image
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                joining = [b for b in state.replicas if b not in state.isr and image.may_lead(b, topic.name, index)]
                if joining and state.leader != NO_LEADER:
                    wider = state._replace(isr=(*state.isr, *joining))
                    with suppress(Conflict):
                        await metadata.write([StateChange(topic.name, topic.topic_id, index, wider)])

    async def shut_down(self) -> None:
        member = self.anybody()
        await member.metadata.update_registration(
            BrokerInfo(member.id, None, (), shutting_down=self.random.random() < 0.5)
        )

    async def kill_or_start(self) -> None:
        id_ = self.random.randint(1, BROKERS)
        if id_ not in self.members:
            await self.start(id_)
        elif len(self.members) > 1:
            await self.members.pop(id_).kill()

    async def rebalance(self) -> None:
        self.anybody().controller.rebalance()

    async def check_agreement(self) -> None:
        for id_ in range(1, BROKERS + 1):
            if id_ not in self.members:
                await self.start(id_)
        for member in self.members.values():
            await member.metadata.update_registration(BrokerInfo(member.id, None, ()))
        await eventually(self._agree, f"{self.context}: all brokers agree, and all partitions have leaders")

    async def _agree(self) -> bool:
        await self.join()
        store = EmbeddedStore(self._path, durable=False)
        fresh = Metadata(store, ManualClock(), lambda size: bytes(size))
        await fresh.load()
        await store.close()
        states = [state for topic in fresh.image.topics.values() for state in topic.partitions]
        return all(member.metadata.image == fresh.image for member in self.members.values()) and all(
            state.leader != NO_LEADER and not state.adding and sorted(state.isr) == sorted(state.replicas)
            for state in states
        )

    async def close(self) -> None:
        for member in self.members.values():
            await member.kill()


@pytest.mark.parametrize("seed", range(20))
def test_brokers_at_random(tmp_path: Path, seed: int) -> None:
    async def whole() -> None:
        schedule = Schedule(tmp_path, seed)
        try:
            await asyncio.wait_for(schedule.run(), 60)
        finally:
            await schedule.close()

    asyncio.run(whole())
