"""A second coordinator over a topic of its own: what it has answered outlives restarts, kills and its leader."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from moldau.broker.coordinator import Coordinator
from moldau.coordinators.outcome import Decision
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.requests.groups_access import awaited
from moldau.testing.brokers import BrokerInThread
from moldau.testing.clusters import ClusterInThread, cluster
from tests.broker.toy_locks import TOPIC, LockShard, settings

LONG_MS = 600_000
TIMEOUT_S = 30
ASK_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
NAMES = [f"lock-{number}" for number in range(12)]
"""Enough for every partition of the topic."""

T = TypeVar("T")
Decide = Callable[[LockShard], Decision[Any]]


class Node:
    """A broker that coordinates locks, too."""

    def __init__(self, kafka: BrokerInThread) -> None:
        self.kafka = kafka
        self.coordinator = self._run(self._begin())

    async def _begin(self) -> Coordinator[LockShard]:
        loop, broker = asyncio.get_running_loop(), self.kafka.broker
        coordinator = Coordinator(loop, broker.parts, TOPIC, settings, LockShard)
        broker.coordinate(coordinator)
        return coordinator

    async def _decide(self, name: str, decide: Decide) -> Any:
        try:
            await self.coordinator.ensure_topic()
        except ApiError as error:
            return error
        return await awaited(self.coordinator.answer(name, decide, lambda error: error))

    def ask(self, name: str, decide: Decide) -> Any:
        """The answer, or an ApiError."""
        return self._run(self._decide(name, decide))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.kafka._loop).result(TIMEOUT_S)


class Locks:
    """The locks of a cluster as its clients have them: whoever does not coordinate is not asked for long."""

    def __init__(self, *kafkas: BrokerInThread) -> None:
        self.nodes = {kafka: Node(kafka) for kafka in kafkas}

    def again(self, kafka: BrokerInThread) -> None:
        """It has started again."""
        self.nodes[kafka] = Node(kafka)

    def acquire(self, name: str, owner: str, lease_ms: int = LONG_MS) -> str:
        holder: str = self._ask(name, lambda shard: shard.acquire(name, owner, lease_ms))
        return holder

    def release(self, name: str, owner: str) -> bool:
        is_done: bool = self._ask(name, lambda shard: shard.release(name, owner))
        return is_done

    def _ask(self, name: str, decide: Decide) -> Any:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            for kafka in [kafka for kafka in self.nodes if kafka.is_running]:
                answer = self.nodes[kafka].ask(name, decide)
                if not isinstance(answer, ApiError):
                    return answer
                assert answer.code in ASK_AGAIN, answer
            assert time.monotonic() < deadline, f"nobody coordinates {name}"
            time.sleep(0.01)


def _one(tmp_path: Path) -> BrokerInThread:
    kafka = BrokerInThread(tmp_path)
    kafka.start()
    return kafka


@pytest.mark.parametrize("ends", [BrokerInThread.stop, BrokerInThread.kill], ids=["stopped", "killed"])
def test_what_was_answered_is_there_after_the_broker_has_started_again(
    tmp_path: Path, ends: Callable[[BrokerInThread], None]
) -> None:
    kafka = _one(tmp_path)
    locks = Locks(kafka)
    try:
        assert [locks.acquire(name, "a") for name in NAMES] == ["a"] * len(NAMES)
        assert locks.acquire(NAMES[0], "b") == "a"
        assert locks.release(NAMES[1], "a")
        assert not locks.release(NAMES[2], "b")
        ends(kafka)
        kafka.start()
        locks.again(kafka)
        assert [locks.acquire(name, "b") for name in NAMES] == ["a", "b", *["a"] * (len(NAMES) - 2)]
    finally:
        kafka.stop()


def test_a_lease_ends_also_if_its_broker_was_killed_in_between(tmp_path: Path) -> None:
    kafka = _one(tmp_path)
    locks = Locks(kafka)
    try:
        assert locks.acquire("short", "a", lease_ms=200) == "a"
        kafka.kill()
        kafka.start()
        locks.again(kafka)
        deadline = time.monotonic() + TIMEOUT_S
        while locks.acquire("short", "b") != "b":
            assert time.monotonic() < deadline, "the lease never ends"
            time.sleep(0.05)
    finally:
        kafka.stop()


def _leaders(kafka: ClusterInThread) -> set[int]:
    return {state.leader for state in kafka.brokers[kafka.running[0]].image.topics[TOPIC].partitions}


def test_what_was_answered_is_there_when_the_leaders_are_killed_one_after_the_other() -> None:
    with cluster(3) as kafka:
        locks = Locks(*kafka.brokers.values())
        owners: dict[str, str] = {}
        for round_ in range(3):
            for name in NAMES:
                owners[f"{name}-{round_}"] = locks.acquire(f"{name}-{round_}", f"owner-{round_}")
            victim = min(_leaders(kafka))
            kafka.kill(victim)
            assert {name: locks.acquire(name, "somebody else") for name in owners} == owners
            kafka.start(victim)
            locks.again(kafka.brokers[victim])
            for partition in range(3):
                kafka.wait_for_isr(TOPIC, {1, 2, 3}, partition)
        assert set(owners.values()) == {"owner-0", "owner-1", "owner-2"}


def test_a_broker_that_leads_no_more_says_so_and_the_groups_beside_do_not_mind() -> None:
    with cluster(3) as kafka:
        locks = Locks(*kafka.brokers.values())
        assert locks.acquire("lock", "a") == "a"
        answers = [node.ask("lock", lambda shard: shard.acquire("lock", "b", LONG_MS)) for node in locks.nodes.values()]
        refused = [answer.code for answer in answers if isinstance(answer, ApiError)]
        assert refused == [ErrorCode.NOT_COORDINATOR] * 2
        assert [answer for answer in answers if not isinstance(answer, ApiError)] == ["a"]
        assert not any(node.kafka.broker.services.groups.has_topic for node in locks.nodes.values())
