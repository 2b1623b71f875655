import asyncio
from collections.abc import Awaitable, Callable

from moldau.protocol.errors import ErrorCode
from moldau.replication.delayed import when_committed
from tests.replication.helpers import Leader

LONG_MS = 60_000


def pair() -> Leader:
    return Leader(isr=(1, 2), replicas=(1, 2))


def run(test: Callable[[asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(asyncio.get_running_loop())

    asyncio.run(main())


def test_nothing_waits_for_what_is_committed() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        leader = pair()
        leader.append(1)
        leader.fetched(2, 1)
        assert when_committed(loop, [(leader.partition, 1)], LONG_MS) is None

    run(test)


def test_it_waits_for_every_part() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        one, two = pair(), pair()
        one.append(1)
        two.append(1)
        future = when_committed(loop, [(one.partition, 1), (two.partition, 1)], LONG_MS)
        assert future is not None
        one.fetched(2, 1)
        assert not future.done()
        two.fetched(2, 1)
        assert await future == {}

    run(test)


def test_only_the_parts_that_failed_are_told() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        one, two = pair(), pair()
        one.append(1)
        two.append(1)
        future = when_committed(loop, [(one.partition, 1), (two.partition, 1)], LONG_MS)
        assert future is not None
        two.partition.resign()
        one.fetched(2, 1)
        assert await future == {two.partition: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(test)


def test_its_time_can_be_up() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        one, two = pair(), pair()
        one.append(1)
        two.append(1)
        future = when_committed(loop, [(one.partition, 1), (two.partition, 1)], 1)
        assert future is not None
        one.fetched(2, 1)
        assert await future == {two.partition: ErrorCode.REQUEST_TIMED_OUT}
        two.fetched(2, 1)  # and nobody is told of it

    run(test)


def test_who_is_gone_does_not_wait() -> None:
    async def test(loop: asyncio.AbstractEventLoop) -> None:
        leader = pair()
        leader.append(1)
        future = when_committed(loop, [(leader.partition, 1)], LONG_MS)
        assert future is not None
        future.cancel()
        await asyncio.sleep(0)
        leader.fetched(2, 1)
        assert future.cancelled()

    run(test)
