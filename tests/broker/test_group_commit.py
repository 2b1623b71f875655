"""One sync serves all who wrote before it began, and each of them on its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest

from moldau.broker.directory_threads import SYNC_THREADS, SyncThreads
from moldau.broker.group_commit import GroupCommit, committer
from moldau.core.files import HasDescriptor, OnResult
from moldau.log.log import Log
from moldau.replication.durability import Failed

PATIENCE_S = 20.0
WRITES = 400


class ManualThreads:
    """Runs what it was given when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[Log], None], each: Log, /) -> None:
        self.jobs.append(partial(job, each))

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
        self.written = self.synced = self.syncs = 0
        self.is_broken = is_broken
        self.meanwhile: Callable[[], object] = lambda: None

    def sync(self) -> None:
        end = self.written
        self.meanwhile()
        if self.is_broken:
            raise OSError("the disk is gone")
        self.synced = end
        self.syncs += 1


class Waiter:
    """Somebody who waits for a sync."""

    def __init__(self, *logs: FakeLog) -> None:
        self.failed: Failed | None = None
        self._wrote = {log: log.written for log in logs}

    def told(self, failed: Failed) -> None:
        assert self.failed is None, "told twice"
        assert all(log.synced >= end or cast(Log, log) in failed for log, end in self._wrote.items())
        self.failed = failed

    @property
    def is_done(self) -> bool:
        return self.failed is not None


class Bench:
    def __init__(self) -> None:
        self.threads = ManualThreads()
        self._committer = GroupCommit(asyncio.get_running_loop(), self.threads)

    def commit(self, *logs: FakeLog) -> Waiter:
        waiter = Waiter(*logs)
        self._committer.commit(cast(list[Log], list(logs)), waiter.told)
        return waiter


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
        assert not any(each.is_done for each in waiting)
        await bench.threads.run()
        assert [each.failed for each in waiting] == [frozenset()] * 3
        assert log.syncs == 1

    _run(test)


def test_who_writes_before_the_sync_begins_shares_it_also_if_it_was_asked_for_earlier() -> None:
    async def test(bench: Bench) -> None:
        log = FakeLog("a")
        first = bench.commit(log)
        await _turns()
        assert len(bench.threads.jobs) == 1
        second = bench.commit(log)
        await bench.threads.run()
        assert (first.is_done, second.is_done, log.syncs) == (True, True, 1)
        assert not bench.threads.jobs

    _run(test)


def test_what_is_written_during_a_sync_waits_for_the_next_one() -> None:
    async def test(bench: Bench) -> None:
        log = FakeLog("a")
        during: list[Waiter] = []

        def write() -> None:
            log.meanwhile = lambda: None
            log.written += 1
            during.append(bench.commit(log))

        log.meanwhile = write
        first = bench.commit(log)
        await _turns()
        await bench.threads.run()
        assert (first.is_done, during[0].is_done, log.syncs) == (True, False, 1)
        await bench.threads.run()
        assert (during[0].is_done, log.syncs) == (True, 2)

    _run(test)


def test_nobody_waits_for_a_log_that_it_did_not_write_to() -> None:
    async def test(bench: Bench) -> None:
        mine, other = FakeLog("mine"), FakeLog("other")
        waiting, both = bench.commit(mine), bench.commit(mine, other, other)
        await _turns()
        bench.threads.jobs.pop(0)()
        await _turns()
        assert (waiting.is_done, both.is_done) == (True, False)
        await bench.threads.run()
        assert both.is_done

    _run(test)


def test_one_who_fails_when_it_is_told_takes_nobody_along(caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        log, stays = FakeLog("a"), Waiter()
        bench._committer.commit(cast(list[Log], [log]), stays.told)
        bench._committer.commit(cast(list[Log], [log]), lambda failed: [][len(failed)])
        await _turns()
        await bench.threads.run()
        assert stays.is_done

    _run(test)
    assert "one who waited for a sync has failed" in caplog.text


def test_those_who_wait_are_told_in_the_order_that_lets_a_connection_send_its_answers_at_once() -> None:
    async def test(bench: Bench) -> None:
        told: list[int] = []
        log = cast(Log, FakeLog("a"))
        for number in range(3):
            bench._committer.commit([log], lambda _, number=number: told.append(number))  # type: ignore[misc]
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
        assert waiting.failed == frozenset({cast(Log, broken)})

    _run(test)
    assert "cannot sync broken" in caplog.text


class Directories:
    """Three data directories, with threads of their own."""

    def __init__(self) -> None:
        self.threads = {path: ManualThreads() for path in ("/x", "/y", "/z")}
        self._committer = committer(asyncio.get_running_loop(), self.threads, {})

    def commit(self, *logs: FakeLog) -> Waiter:
        waiter = Waiter(*logs)
        self._committer.commit(cast(list[Log], list(logs)), waiter.told)
        return waiter


def test_who_writes_to_two_directories_waits_for_both_and_for_no_other() -> None:
    async def test() -> None:
        directories = Directories()
        x, y, z = (FakeLog(path, data_directory=path, is_broken=path == "/y") for path in ("/x", "/y", "/z"))
        both, alone, other = directories.commit(x, y), directories.commit(y), directories.commit(z)
        await _turns()
        await directories.threads["/y"].run()
        assert (both.is_done, alone.is_done, other.is_done) == (False, True, False)
        await directories.threads["/x"].run()
        assert both.failed == alone.failed == frozenset({cast(Log, y)})
        await directories.threads["/z"].run()
        assert other.failed == frozenset()

    asyncio.run(test())


class KernelLog(FakeLog):
    """A log whose syncs an engine can take."""

    def sync_later(self, engine: "ManualEngine", then: Callable[[None], None]) -> bool:
        end = self.written

        def ended() -> None:
            self.synced = end
            then(None)

        engine.begun.append(ended)
        return True


class ManualEngine:
    """Ends what was begun when it is told to."""

    def __init__(self) -> None:
        self.begun: list[Callable[[], None]] = []
        self.submitted: list[int] = []

    def begin(self, file: HasDescriptor, then: OnResult) -> bool:
        raise NotImplementedError

    def submit(self) -> None:
        self.submitted.append(len(self.begun))


def test_few_logs_are_synced_by_threads_and_many_at_once_by_the_engine() -> None:
    async def test() -> None:
        threads, engine = ManualThreads(), ManualEngine()
        commits = committer(asyncio.get_running_loop(), {"/data": threads}, {"/data": engine}, engine_logs_min=3)
        logs = [KernelLog(str(number)) for number in range(5)]
        few, many = Waiter(*logs[:2]), Waiter(*logs[2:])
        commits.commit(cast(list[Log], logs[:2]), few.told)
        await _turns()
        assert (len(threads.jobs), engine.submitted) == (2, [])
        commits.commit(cast(list[Log], logs[2:]), many.told)
        await _turns()
        assert (len(threads.jobs), engine.submitted) == (2, [3])
        await threads.run()
        assert (few.is_done, many.is_done) == (True, False)
        for ended in engine.begun:
            ended()
        await _turns()
        assert many.failed == frozenset()

    asyncio.run(test())


def test_the_engine_is_given_the_next_portion_when_half_of_the_last_one_has_ended() -> None:
    async def test() -> None:
        threads, engine = ManualThreads(), ManualEngine()
        commits = committer(asyncio.get_running_loop(), {"/data": threads}, {"/data": engine}, engine_logs_min=3)
        logs = [KernelLog(str(number)) for number in range(6)]

        async def commit(*some: KernelLog) -> tuple[int, int]:
            """Syncs that the threads and the engine have not ended, after these logs were asked for."""
            commits.commit(cast(list[Log], some), Waiter(*some).told)
            await _turns()
            return len(threads.jobs), len(engine.begun)

        async def end_one() -> tuple[int, int]:
            engine.begun.pop(0)()
            await _turns()
            return len(threads.jobs), len(engine.begun)

        assert await commit(*logs[:4]) == (0, 4)
        assert await commit(logs[4]) == (0, 4)
        assert await commit(logs[5]) == (0, 4)
        assert await end_one() == (0, 3)
        assert await end_one() == (0, 4), "two that waited, with two under way: the engine goes on with few"
        for left in (3, 2, 1, 0):
            assert await end_one() == (0, left)
        assert await commit(logs[0]) == (1, 0), "one alone is for a thread"

    asyncio.run(test())


# In real threads


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():
            await asyncio.sleep(0)


def test_no_write_is_answered_before_a_sync_that_began_after_it() -> None:
    async def test() -> None:
        threads = SyncThreads("test")
        commits = GroupCommit(asyncio.get_running_loop(), threads)
        logs = [FakeLog(str(number)) for number in range(SYNC_THREADS + 3)]
        waiters: list[Waiter] = []
        for number in range(WRITES):
            chosen = logs[number % len(logs) :][: 1 + number % 3]
            for log in chosen:
                log.written += 1
            waiters.append(Waiter(*chosen))  # it checks the law when it is told
            commits.commit(cast(list[Log], chosen), waiters[-1].told)
            if number % 5 == 0:
                await asyncio.sleep(0)
        await _until(lambda: all(each.is_done for each in waiters))
        assert not any(each.failed for each in waiters)
        threads.shutdown()

    asyncio.run(test())


def test_syncs_of_several_logs_run_side_by_side() -> None:
    async def test() -> None:
        threads = SyncThreads("test")
        commits = GroupCommit(asyncio.get_running_loop(), threads)
        meeting = threading.Barrier(SYNC_THREADS)
        logs = [FakeLog(str(number)) for number in range(2 * SYNC_THREADS)]
        for log in logs:
            log.meanwhile = partial(meeting.wait, PATIENCE_S)
        waiter = Waiter(*logs)
        commits.commit(cast(list[Log], logs), waiter.told)
        await _until(lambda: waiter.is_done)
        assert waiter.failed == frozenset()
        threads.shutdown()

    asyncio.run(test())


def test_threads_are_started_as_they_are_needed_and_end_when_all_is_done() -> None:
    threads, begun, go_on, done = SyncThreads("test"), threading.Semaphore(0), threading.Event(), []

    def job(each: Log) -> None:
        begun.release()
        go_on.wait(PATIENCE_S)
        done.append(each)

    assert not threads._threads
    logs = [cast(Log, FakeLog(str(number))) for number in range(SYNC_THREADS + 1)]
    for count, log in enumerate(logs[:2], 1):
        threads.submit(job, log)
        assert begun.acquire(timeout=PATIENCE_S)
        assert len(threads._threads) == count
    for log in logs[2:]:
        threads.submit(job, log)
    go_on.set()
    threads.shutdown()
    assert len(threads._threads) == SYNC_THREADS
    assert set(done) == set(logs)
