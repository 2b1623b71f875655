"""One round of syncs serves all who wrote before it, and each of them on its own."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from moldau.broker.group_commit import GroupCommit, committer
from moldau.log.log import Log


class ManualThreads(Executor):
    """Runs what it was given when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], Any]] = []

    def submit(self, job: Callable[..., Any], /, *args: Any, **more: Any) -> "Future[Any]":
        self.jobs.append(lambda: job(*args, **more))
        return Future()

    async def run(self) -> None:
        """All that is there now, and what hangs on it in the loop."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()
        await _turns()


class FakeLog:
    def __init__(self, name: str, *, is_broken: bool = False, data_directory: str = "/data") -> None:
        self.topic_partition = name
        self.data_directory = data_directory
        self.syncs = 0
        self._is_broken = is_broken

    def sync(self) -> None:
        if self._is_broken:
            raise OSError("the disk is gone")
        self.syncs += 1


class Bench:
    def __init__(self) -> None:
        self.threads = ManualThreads()
        self._committer = GroupCommit(asyncio.get_running_loop(), self.threads)

    def commit(self, *logs: FakeLog) -> "asyncio.Future[frozenset[Log]]":
        return self._committer.commit(cast(list[Log], list(logs)))


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def _run(test: Test) -> None:
    async def run() -> None:
        await test(Bench())

    asyncio.run(run())


def test_one_sync_serves_all_who_wrote_before_it() -> None:
    async def test(bench: Bench) -> None:
        log = FakeLog("a")
        waiting = [bench.commit(log) for _ in range(3)]
        await _turns()
        assert not any(each.done() for each in waiting)
        await bench.threads.run()
        assert [each.result() for each in waiting] == [frozenset()] * 3
        assert log.syncs == 1

    _run(test)


def test_what_is_written_during_a_round_waits_for_the_next_one() -> None:
    async def test(bench: Bench) -> None:
        log = FakeLog("a")
        first = bench.commit(log)
        await _turns()
        second = bench.commit(log)
        await bench.threads.run()
        assert (first.done(), second.done()) == (True, False)
        await bench.threads.run()
        assert second.done()
        assert log.syncs == 2

    _run(test)


def test_who_goes_away_takes_nobody_along() -> None:
    async def test(bench: Bench) -> None:
        log = FakeLog("a")
        gone, stays = bench.commit(log), bench.commit(log)

        async def wait() -> None:
            await gone

        task = asyncio.ensure_future(wait())
        await _turns()
        task.cancel()
        await bench.threads.run()
        assert task.cancelled()
        assert stays.result() == frozenset()

    _run(test)


def test_those_who_wait_are_told_in_the_order_that_lets_a_connection_send_its_answers_at_once() -> None:
    async def test(bench: Bench) -> None:
        told: list[int] = []
        log = FakeLog("a")
        for number in range(3):
            bench.commit(log).add_done_callback(lambda _, number=number: told.append(number))  # type: ignore[misc]
        await _turns()
        await bench.threads.run()
        assert told == [2, 1, 0]

    _run(test)


def test_a_log_whose_sync_fails_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        good, broken = FakeLog("good"), FakeLog("broken", is_broken=True)
        waiting = bench.commit(good, broken)
        await _turns()
        await bench.threads.run()
        assert waiting.result() == {cast(Log, broken)}

    _run(test)
    assert "cannot sync broken" in caplog.text


class Directories:
    """Three data directories, with threads of their own."""

    def __init__(self) -> None:
        self.threads = {path: ManualThreads() for path in ("/x", "/y", "/z")}
        self._committer = committer(asyncio.get_running_loop(), self.threads)

    def commit(self, *logs: FakeLog) -> "asyncio.Future[frozenset[Log]]":
        return self._committer.commit(cast(list[Log], list(logs)))


def test_who_writes_to_two_directories_waits_for_both_and_for_no_other() -> None:
    async def test() -> None:
        directories = Directories()
        x, y, z = (FakeLog(path, data_directory=path, is_broken=path == "/y") for path in ("/x", "/y", "/z"))
        both, alone = directories.commit(x, y), directories.commit(y)
        other, cancelled = directories.commit(z), directories.commit(x, y, z)
        cancelled.cancel()
        await _turns()
        await directories.threads["/y"].run()
        assert (both.done(), alone.done(), other.done()) == (False, True, False)
        await directories.threads["/x"].run()
        assert both.result() == alone.result() == {cast(Log, y)}
        await directories.threads["/z"].run()
        assert other.result() == frozenset()

    asyncio.run(test())
