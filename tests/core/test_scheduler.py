"""What the layers below the shell rely on of the loop, held by the real one and by its twin alike."""

import asyncio
from collections.abc import Callable

import pytest

from moldau.core.scheduler import Scheduler
from moldau.testing.virtual_loop import virtual_loop

TICK_S = 0.02
Play = Callable[[Scheduler], Callable[[], bool]]
"""Sets a scene, and says when it is over."""


def in_real_time(play: Play) -> None:
    async def wait() -> None:
        is_over = play(asyncio.get_running_loop())
        while not is_over():
            await asyncio.sleep(TICK_S / 4)

    asyncio.run(asyncio.wait_for(wait(), 10))


def in_virtual_time(play: Play) -> None:
    loop = virtual_loop()
    is_over = play(loop)
    assert not is_over(), "nothing is called before the loop runs"
    loop.run_until(loop.time() + 10 * TICK_S)
    assert is_over()


@pytest.mark.parametrize("run", [in_real_time, in_virtual_time])
def test_calls_come_in_their_order_at_their_time_and_not_if_they_are_cancelled(run: Callable[[Play], None]) -> None:
    seen: list[str] = []

    def play(scheduler: Scheduler) -> Callable[[], bool]:
        start = scheduler.time()
        scheduler.call_later(2 * TICK_S, lambda: seen.append("later"))
        scheduler.call_at(start + TICK_S, lambda: seen.append("at"))
        scheduler.call_at(start + TICK_S / 2, lambda: seen.append("never")).cancel()
        scheduler.call_soon(lambda: seen.append("soon"))
        scheduler.call_soon(lambda: seen.append("after that"))
        future = scheduler.create_future()
        future.add_done_callback(lambda _: seen.append(future.result()))
        scheduler.call_later(3 * TICK_S, lambda: future.set_result("result"))
        return lambda: len(seen) >= 5 and scheduler.time() > start

    run(play)
    assert seen == ["soon", "after that", "at", "later", "result"]
