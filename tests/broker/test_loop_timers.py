"""A shard's timers on a real loop: short delays, and events rather than sleeps."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.loop_timers import LoopTimers
from moldau.coordinators.outcome import NOTHING, Outcome
from moldau.coordinators.timers import Expire

SESSION_MS = 60_000


class Ran:
    """What ran, in order; `all_of` waits for so many."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._one_more = asyncio.Event()

    def apply(self, expire: Expire) -> None:
        expire()
        self._one_more.set()

    def note(self, name: str) -> Expire:
        def expire() -> Outcome:
            self.names.append(name)
            return NOTHING

        return expire

    async def all_of(self, count: int) -> list[str]:
        async with asyncio.timeout(10):
            while len(self.names) < count:
                self._one_more.clear()
                await self._one_more.wait()
        return self.names


def run(test: Callable[[LoopTimers, Ran], Awaitable[None]]) -> None:
    async def main() -> None:
        ran = Ran()
        await test(LoopTimers(asyncio.get_running_loop(), ran.apply), ran)

    asyncio.run(main())


def test_timers_run_in_the_order_of_their_times_and_equal_ones_in_the_order_of_their_making() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        timers.schedule("session", SESSION_MS, ran.note("session"))
        timers.schedule("third", 30, ran.note("third"))
        timers.schedule("first", 0, ran.note("first"))
        timers.schedule("second", 0, ran.note("second"))
        assert await ran.all_of(3) == ["first", "second", "third"]
        timers.cancel_all()

    run(test)


def test_a_timer_that_is_put_off_runs_once_and_late_and_one_brought_forward_early() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        timers.schedule("put off", 1, ran.note("too early"))
        timers.schedule("put off", 50, ran.note("put off"))
        timers.schedule("brought forward", SESSION_MS, ran.note("too late"))
        timers.schedule("brought forward", 1, ran.note("brought forward"))
        assert await ran.all_of(2) == ["brought forward", "put off"]

    run(test)


def test_a_cancelled_timer_does_not_run_even_if_another_cancels_it_in_the_same_moment() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        def cancel_other() -> Outcome:
            timers.cancel("other")
            return ran.note("canceller")()

        timers.schedule("gone", 0, ran.note("gone"))
        timers.schedule("canceller", 0, cancel_other)
        timers.schedule("other", 0, ran.note("other"))
        timers.schedule("last", 20, ran.note("last"))
        timers.cancel("gone")
        timers.cancel("never there")
        assert await ran.all_of(2) == ["canceller", "last"]

    run(test)


def test_a_timer_that_schedules_itself_leaves_the_loop_its_turn() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        def again() -> Outcome:
            timers.schedule("again", 0, again)
            return ran.note("again")()

        timers.schedule("again", 0, again)
        await ran.all_of(3)
        timers.cancel_all()

    run(test)


def test_the_failure_of_one_timer_does_not_keep_others_from_running() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        def fail() -> Outcome:
            raise ZeroDivisionError

        asyncio.get_running_loop().set_exception_handler(lambda _, context: ran.names.append(str(context["exception"])))
        timers.schedule("failing", 0, fail)
        timers.schedule("next", 0, ran.note("next"))
        assert "next" in await ran.all_of(2)

    run(test)


def test_what_was_cancelled_is_forgotten_long_before_its_time() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        for number in range(10_000):
            timers.schedule(f"session {number}", SESSION_MS, ran.note("session"))
            timers.cancel(f"session {number}")
        assert len(timers._queue) < 200
        timers.cancel_all()

    run(test)


def test_very_many_that_are_due_at_once_leave_the_loop_its_turn_and_keep_their_order() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        names = [str(number) for number in range(20_000)]
        for name in names:
            timers.schedule(name, 0, ran.note(name))
        rounds = 0
        while len(ran.names) < len(names):
            await asyncio.sleep(0)
            rounds += 1
        assert ran.names == names
        assert rounds > 3

    run(test)


def test_what_waits_for_its_turn_does_not_run_after_the_end() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        for number in range(20_000):
            timers.schedule(str(number), 0, ran.note("many"))
        await ran.all_of(1)
        so_far = len(ran.names)
        assert so_far < 20_000
        timers.cancel_all()
        timers.schedule("after", 5, ran.note("after"))
        await ran.all_of(so_far + 1)
        assert ran.names[so_far:] == ["after"]

    run(test)


def test_nothing_runs_after_the_end() -> None:
    async def test(timers: LoopTimers, ran: Ran) -> None:
        timers.schedule("never", 0, lambda: pytest.fail("a timer ran after the end"))
        timers.cancel_all()
        timers.schedule("after", 5, ran.note("after"))
        assert await ran.all_of(1) == ["after"]

    run(test)
