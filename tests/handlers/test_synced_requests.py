"""Produce where acks=all waits for this disk: the handler's way and the quick one."""

import asyncio

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.replication.durability import Durability
from tests.committers import ManualDisk
from tests.handlers.conftest import World
from tests.handlers.replicated import PRODUCE_VERSION, Replicated, at, turns

PRODUCE = 0


class Synced(Replicated):
    """Broker 1 syncs when the test says so."""

    def __init__(self, world: World) -> None:
        self.disk = ManualDisk()
        world.replace(durability=Durability("group", self.disk))
        super().__init__(world)

    def produce(self, topic_id: bytes, *, acks: int = -1, timeout_ms: int = 30_000) -> "asyncio.Future[bytes]":
        request = self.produce_request(topic_id, self.batch(), timeout_ms)
        request.acks = acks  # type: ignore[misc]  # frozen for mypy only
        return self.send(9, request, PRODUCE_VERSION)

    async def learned(self, topic_id: bytes, *, acks: int = -1, timeout_ms: int = 30_000) -> None:
        """Have one request served, so that those like it are served from its bytes."""
        answer = self.produce(topic_id, acks=acks, timeout_ms=timeout_ms)
        end = self.partition("t").log.log_end_offset
        for replica in self.partition("t").replicas[1:]:
            await self.replica_fetch(replica, at(topic_id, end, last_epoch=0))
        if self.disk.syncs:
            await self.disk.finish()
        await turns()
        assert answer.done()
        (introduction,) = self.peers[9].introductions.values()
        assert introduction.repeats is not None
        assert introduction.repeats._known, "the quick way is not taken"  # type: ignore[attr-defined]

    def result_of(self, answer: "asyncio.Future[bytes]") -> tuple[int, int]:
        (result,) = self.received(9, PRODUCE, PRODUCE_VERSION, answer.result()).responses[0].partition_responses
        return result.error_code, result.base_offset


@pytest.fixture
def cluster(world: World) -> Synced:
    return Synced(world)


@pytest.fixture(params=[False, True], ids=["handler", "quick"])
def quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_acks_all_is_answered_after_the_sync(cluster: Synced, quick: bool) -> None:
    topic_id = cluster.create("t", 1)

    async def test() -> None:
        if quick:
            await cluster.learned(topic_id)
        answer = cluster.produce(topic_id)
        await turns()
        assert not answer.done()
        await cluster.disk.finish()
        await turns()
        assert cluster.result_of(answer) == (ErrorCode.NONE, int(quick))

    cluster.run(test)


def test_acks_1_does_not_wait_for_the_disk(cluster: Synced, quick: bool) -> None:
    topic_id = cluster.create("t", 1)

    async def test() -> None:
        if quick:
            await cluster.learned(topic_id, acks=1)
        answer = cluster.produce(topic_id, acks=1)
        assert cluster.result_of(answer) == (ErrorCode.NONE, int(quick))
        assert not cluster.disk.syncs

    cluster.run(test)


def test_a_write_whose_sync_fails_is_told_so(cluster: Synced, quick: bool) -> None:
    topic_id = cluster.create("t", 1)

    async def test() -> None:
        if quick:
            await cluster.learned(topic_id)
        answer = cluster.produce(topic_id)
        await cluster.disk.finish(frozenset({cluster.partition("t").log}))
        await turns()
        assert cluster.result_of(answer)[0] == ErrorCode.KAFKA_STORAGE_ERROR

    cluster.run(test)


@pytest.mark.parametrize("disk_first", [True, False])
def test_acks_all_waits_for_the_disk_and_for_the_other_replicas(cluster: Synced, quick: bool, disk_first: bool) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        if quick:
            await cluster.learned(topic_id)
        answer = cluster.produce(topic_id)
        end = cluster.partition("t").log.log_end_offset

        async def replicate() -> None:
            await cluster.replica_fetch(2, at(topic_id, end, last_epoch=0))

        first, second = (cluster.disk.finish, replicate) if disk_first else (replicate, cluster.disk.finish)
        await first()
        await turns()
        assert not answer.done()
        await second()
        await turns()
        assert cluster.result_of(answer) == (ErrorCode.NONE, int(quick))

    cluster.run(test)


def test_a_write_whose_time_is_up_is_not_answered_before_the_sync(cluster: Synced, quick: bool) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        if quick:
            await cluster.learned(topic_id, timeout_ms=1)
        answer = cluster.produce(topic_id, timeout_ms=1)
        done, _ = await asyncio.wait([answer], timeout=0.05)  # the clock of the loop is real: 50 times its time
        assert not done
        await cluster.disk.finish()
        await asyncio.wait([answer], timeout=10)
        assert cluster.result_of(answer)[0] == ErrorCode.REQUEST_TIMED_OUT

    cluster.run(test)
