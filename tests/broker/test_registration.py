"""A broker's place in the cluster: what it means to have it, to lose it, and to get it back."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ParamSpec

import pytest

from moldau.broker.registration import BrokerStartError, Registration
from moldau.cluster import znodes
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.image import BrokerInfo, Endpoint
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import Operation, SessionLost, StoreUnavailable
from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition

INFO = BrokerInfo(1, None, (Endpoint("PLAINTEXT", "here", 9092, "PLAINTEXT"),))
DEADLINE_S = 10.0

Parameters = ParamSpec("Parameters")


def in_loop(test: Callable[Parameters, Coroutine[None, None, None]]) -> Callable[Parameters, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Member:
    """A broker that writes down what happens to its registration."""

    def __init__(self, store: EmbeddedStore, patience_s: float) -> None:
        self.store = store
        self.metadata = Metadata(store, ManualClock(), lambda size: bytes(size))
        self.events: list[str] = []
        self._happened = asyncio.Event()
        self.registration = Registration(
            self.metadata,
            store,
            INFO,
            patience_s=patience_s,
            on_connection=lambda connected: self._note("connected" if connected else "disconnected"),
            on_lost=lambda: self._note("lost"),
            on_registered=lambda: self._note("registered"),
            on_failed=lambda reason: self._note(f"failed: {reason}"),
        )

    def _note(self, event: str) -> None:
        self.events.append(event)
        self._happened.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    async def lose_session(self) -> None:
        """As another process ends the session of one that hangs."""
        tree = self.store._tree
        with tree.transaction():
            tree.log(tree.end_sessions([self.store.session_id]))
        with suppress(SessionLost):
            await self.store.create("/not-made")

    async def registered(self, by: EmbeddedStore | None = None) -> BrokerInfo | None:
        node = await (by or self.store).get(znodes.broker_path(INFO.id))
        return None if node is None else znodes.parse_broker(INFO.id, node.data, node.created)


@asynccontextmanager
async def member(path: Path | str = ":memory:", patience_s: float = 0.2) -> AsyncIterator[Member]:
    store = EmbeddedStore(str(path), durable=False)
    made = Member(store, patience_s)
    await made.metadata.load()
    try:
        yield made
    finally:
        made.registration.close()
        await store.close()


@in_loop
async def test_a_broker_is_registered_with_its_epoch() -> None:
    async with member() as one:
        await one.registration.register()
        found = await one.registered()
        assert found is not None
        assert found == one.registration.info
        assert found.epoch > 0


@in_loop
async def test_a_number_that_another_broker_has_is_refused(tmp_path: Path) -> None:
    async with member(tmp_path / "m") as one, member(tmp_path / "m") as two:
        await one.registration.register()
        with pytest.raises(BrokerStartError, match="broker 1 is running already at here:9092"):
            await two.registration.register()


@in_loop
async def test_an_old_registration_is_waited_for(tmp_path: Path) -> None:
    async with member(tmp_path / "m", patience_s=DEADLINE_S) as two:
        async with member(tmp_path / "m") as one:
            await one.registration.register()
            waiting = asyncio.ensure_future(two.registration.register())
            await asyncio.sleep(0)
        await asyncio.wait_for(waiting, DEADLINE_S)
        assert await two.registered() == two.registration.info


@in_loop
async def test_one_that_has_lost_something_waits_for_the_old_registration_to_go_before_it_says_so(
    tmp_path: Path,
) -> None:
    async with member(tmp_path / "m", patience_s=DEADLINE_S) as two:
        assert not await two.registration.wait_until_free()
        async with member(tmp_path / "m") as one:
            await one.registration.register()
            waiting = asyncio.ensure_future(two.registration.wait_until_free())
            await asyncio.sleep(0)
            assert not waiting.done()
        assert await asyncio.wait_for(waiting, DEADLINE_S)
        assert await two.registered() is None


@in_loop
async def test_partitions_are_offline_until_they_can_be_used_again() -> None:
    async with member() as one:
        await one.registration.mark_offline([TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)])
        await one.registration.register()
        await one.registration.mark_online([TopicPartition("t", 0), TopicPartition("u", 1), TopicPartition("v", 3)])
        found = await one.registered()
        assert found is not None
        assert found.offline == {"t": (2,)}


@in_loop
async def test_what_a_lost_session_means_happens_in_the_callback_that_reports_it() -> None:
    async with member() as one:
        await one.registration.register()
        with one.store._tree.transaction():
            one.store._tree.end_sessions([one.store.session_id])
        seen: list[tuple[bool, list[str]]] = []
        one.store.on_session(lambda _: seen.append((one.registration.is_connected, list(one.events))))
        with pytest.raises(SessionLost):
            await one.store.create("/not-made")
        assert seen == [(False, ["disconnected", "lost"])]


@in_loop
async def test_after_a_lost_session_the_broker_registers_anew_and_only_then_is_connected() -> None:
    async with member() as one:
        await one.registration.register()
        before = one.registration.info.epoch
        await one.lose_session()
        await one.until(lambda: "registered" in one.events)
        assert one.events == ["disconnected", "lost", "connected", "registered"]
        assert one.registration.is_connected
        found = await one.registered()
        assert found is not None
        assert found.epoch > before
        assert one.metadata.image.brokers[1] == found


@in_loop
async def test_a_session_may_be_lost_again_and_again() -> None:
    async with member() as one:
        await one.registration.register()
        for times in (1, 2, 3):
            await one.lose_session()
            await one.until(lambda times=times: one.events.count("registered") == times)  # type: ignore[misc]


@in_loop
async def test_who_finds_its_number_taken_after_a_lost_session_gives_up(tmp_path: Path) -> None:
    async with member(tmp_path / "m") as one, member(tmp_path / "m", patience_s=DEADLINE_S) as two:
        await one.registration.register()
        waiting = asyncio.ensure_future(two.registration.register())
        await asyncio.sleep(0)
        one_returns = one.store.reconnect
        is_taken = asyncio.Event()

        async def reconnect_late() -> None:
            await is_taken.wait()
            await one_returns()

        one.store.reconnect = reconnect_late  # type: ignore[method-assign]
        await one.lose_session()
        two.store._in_loop(two.store._catch_up)
        await asyncio.wait_for(waiting, DEADLINE_S)
        is_taken.set()
        await one.until(lambda: any(event.startswith("failed") for event in one.events))
        assert one.events[-1] == "failed: broker 1 is running already at here:9092"


@in_loop
async def test_a_registration_that_the_store_took_without_saying_so_is_not_mistaken_for_another_broker() -> None:
    async with member() as one:
        multi = one.store.multi

        async def write_and_say_nothing(operations: Sequence[Operation]) -> list[str | int | None]:
            await multi(operations)
            one.store.multi = multi  # type: ignore[method-assign]
            raise StoreUnavailable("/")

        one.store.multi = write_and_say_nothing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await one.registration.register()
        await one.registration.register()
        assert await one.registered() == one.registration.info


@in_loop
async def test_failed_partitions_are_told_in_the_registration_and_kept_in_the_next_one() -> None:
    async with member() as one:
        await one.registration.register()
        await one.registration.mark_offline([TopicPartition("a", 3), TopicPartition("b", 0)])
        await one.registration.mark_offline([TopicPartition("a", 1)])
        found = await one.registered()
        assert found is not None
        assert found.offline == {"a": (1, 3), "b": (0,)}
        await one.lose_session()
        await one.until(lambda: "registered" in one.events)
        found = await one.registered()
        assert found is not None
        assert found.offline == {"a": (1, 3), "b": (0,)}


@in_loop
async def test_a_broker_says_that_it_is_about_to_go() -> None:
    async with member() as one:
        await one.registration.register()
        await one.registration.mark_shutting_down()
        found = await one.registered()
        assert found is not None
        assert found.shutting_down
        assert one.metadata.image.brokers[1].shutting_down
