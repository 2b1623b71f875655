"""Each engine that syncs logs keeps the same promises: threads, and the kernel by Linux AIO."""

import asyncio
import ctypes
import errno
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moldau.broker.directory_threads import SyncThreads
from moldau.broker.group_commit import GroupCommit
from moldau.broker.kernel_syncs import UNDER_WAY_MAX, KernelSyncs
from moldau.broker.sync_engines import sync_engines
from moldau.core.clock import SystemClock
from moldau.core.files import OnResult, SyncEngine
from moldau.core.ids import TopicPartition
from moldau.core.real_files import RealFile, RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.records.batch import Record, build_batch
from moldau.records.validate import prepare_own_batch
from moldau.replication.durability import Failed

PATIENCE_S = 20.0
WRITES = 300
LOGS = 7
NEVER_OPEN = 1_000_000


class Stage:
    """Logs on a real disk, and a group commit over them."""

    def __init__(self, path: Path, engine: SyncEngine | None, threads: SyncThreads) -> None:
        self._manager = LogManager(
            RealFiles(),
            SystemClock(),
            [str(path)],
            config_of=lambda _: TopicConfig(),
            new_uuid=lambda: os.urandom(16),
        )
        self._manager.lock()
        self._manager.claim(1, "engines-engines-engine")
        self._manager.load()
        self.logs = [self._manager.get_or_create(TopicPartition("t", index), b"t" * 16) for index in range(LOGS)]
        self.commits = GroupCommit(asyncio.get_running_loop(), threads, engine)

    def write(self, log: Log) -> None:
        log.append_as_leader(prepare_own_batch(bytearray(build_batch([Record(0, 0, None, b"v" * 100)]))), 0, 0)

    async def commit(self, *logs: Log) -> Failed:
        future: asyncio.Future[Failed] = asyncio.get_running_loop().create_future()
        self.commits.commit(logs, future.set_result)
        assert not future.done()
        return await asyncio.wait_for(future, PATIENCE_S)

    def close(self) -> None:
        self._manager.close({})


Test = Callable[[Stage], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture(params=["thread", "aio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    def run_one(test: Test) -> None:
        async def run() -> None:
            threads = SyncThreads("test")
            engine = KernelSyncs(asyncio.get_running_loop()) if request.param == "aio" else None
            stage = Stage(tmp_path, engine, threads)
            await test(stage)
            if engine is not None:
                engine.close()
            threads.shutdown()
            stage.close()

        asyncio.run(run())

    return run_one


def test_who_is_told_has_it_on_disk(run: Run) -> None:
    async def test(stage: Stage) -> None:
        async def write(number: int) -> None:
            logs = stage.logs[number % LOGS :][: 1 + number % 3]
            for log in logs:
                stage.write(log)
            ends = [log.log_end_offset for log in logs]
            assert await stage.commit(*logs) == frozenset()
            assert all(log.recovery_point >= end for log, end in zip(logs, ends, strict=True))

        waiting = []
        for number in range(WRITES):
            waiting.append(asyncio.ensure_future(write(number)))
            if number % 7 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    run(test)


def test_a_log_that_was_rolled_or_truncated_is_synced_too(run: Run) -> None:
    async def test(stage: Stage) -> None:
        log = stage.logs[0]
        for change in (lambda: log.roll(0), lambda: log.truncate_to(log.log_end_offset - 1), lambda: None):
            stage.write(log)
            stage.write(log)
            change()
            stage.write(log)
            assert await stage.commit(log) == frozenset()
            assert log.recovery_point == log.log_end_offset

    run(test)


def test_what_a_truncation_touches_meanwhile_is_not_vouched_for(run: Run) -> None:
    async def test(stage: Stage) -> None:
        log = stage.logs[0]
        for _ in range(3):
            stage.write(log)
        assert await stage.commit(log) == frozenset()
        for _ in range(3):
            stage.write(log)
        waiting = asyncio.ensure_future(stage.commit(log))
        for _ in range(2):
            await asyncio.sleep(0)
        log.truncate_to(1)
        await waiting
        assert log.recovery_point <= log.log_end_offset == 1

    run(test)


def test_a_failed_sync_is_final(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(stage: Stage) -> None:
        broken, whole = stage.logs[:2]
        for _ in range(2):  # the second sync needs no more than one fdatasync
            stage.write(broken)
            stage.write(whole)
            assert await stage.commit(broken, whole) == frozenset()
        sync_later = RealFile.sync_later

        def fail(file: RealFile) -> None:
            raise OSError(errno.EIO, "the disk is gone", file.path)

        def fail_later(file: RealFile, engine: SyncEngine, then: OnResult) -> bool:
            return sync_later(file, engine, lambda _: then(errno.EIO))

        monkeypatch.setattr(RealFile, "sync", fail)
        monkeypatch.setattr(RealFile, "sync_later", fail_later)
        synced = broken.recovery_point
        stage.write(broken)
        assert await stage.commit(broken) == frozenset({broken})
        assert broken.failure is not None
        monkeypatch.undo()
        assert await stage.commit(broken, whole) == frozenset({broken, whole}), "the directory is not offline"
        assert broken.recovery_point == synced

    run(test)


# The kernel's own


def _in_loop(test: Callable[[KernelSyncs], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        engine = KernelSyncs(asyncio.get_running_loop())
        await test(engine)
        engine.close()

    asyncio.run(run())


class Descriptor(NamedTuple):
    number: int

    def fileno(self) -> int:
        return self.number


def test_the_kernel_names_the_error(tmp_path: Path) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: asyncio.Queue[int] = asyncio.Queue()

        async def result_of(descriptor: int) -> int:
            assert engine.begin(Descriptor(descriptor), results.put_nowait)
            engine.submit()
            assert results.empty(), "told at once"
            return await asyncio.wait_for(results.get(), PATIENCE_S)

        with (tmp_path / "file").open("wb") as file:
            file.write(b"v")
            file.flush()
            assert await result_of(file.fileno()) == 0
            closed = file.fileno()
        assert await result_of(closed) == errno.EBADF
        reader, writer = os.pipe()
        assert await result_of(writer) == errno.EINVAL  # a pipe cannot be synced
        os.close(reader)
        os.close(writer)

    _in_loop(test)


def _submit(engine: KernelSyncs, *, at_most: int) -> list[int]:
    """Counts of syncs that are handed over in each call; the kernel takes `at_most` of them, and of every second call
    none, for want of memory."""
    submit, counts = engine._submit_from, list[int]()

    def some(position: int, count: int) -> int:
        counts.append(count)
        if len(counts) % 2 == 0 and at_most < count:
            ctypes.set_errno(errno.EAGAIN)
            return -1
        return submit(position, min(at_most, count))

    engine._submit_from = some  # type: ignore[method-assign]
    return counts


@pytest.mark.parametrize(("at_most", "calls"), [(9, [9]), (4, [9, 5, 5, 1])])
def test_all_syncs_are_handed_over_in_one_call_or_in_as_many_as_the_kernel_wants(
    tmp_path: Path, at_most: int, calls: list[int]
) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: list[int] = []
        counts = _submit(engine, at_most=at_most)
        with (tmp_path / "file").open("wb") as file:
            for _ in range(9):
                assert engine.begin(file, results.append)
            engine.submit()
            async with asyncio.timeout(PATIENCE_S):
                while len(results) < 9:
                    await asyncio.sleep(0)
        assert (counts, results) == (calls, [0] * 9)

    _in_loop(test)


def test_a_sync_that_the_kernel_refuses_takes_no_other_along(tmp_path: Path) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: dict[int, int] = {}
        with (tmp_path / "file").open("wb") as file:
            for number in range(5):
                descriptor = Descriptor(NEVER_OPEN if number in (0, 3) else file.fileno())
                assert engine.begin(descriptor, partial(results.__setitem__, number))
            engine.submit()
            async with asyncio.timeout(PATIENCE_S):
                while len(results) < 5:
                    await asyncio.sleep(0)
        assert results == {0: errno.EBADF, 1: 0, 2: 0, 3: errno.EBADF, 4: 0}

    _in_loop(test)


def test_a_kernel_that_knows_no_such_sync_is_found_out_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.broker.kernel_syncs._FDSYNC", 99)

    async def test(_: KernelSyncs) -> None: ...

    with pytest.raises(OSError, match="Invalid argument"):
        _in_loop(test)


def test_no_more_is_begun_than_the_kernel_was_asked_to_hold(tmp_path: Path) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: list[int] = []
        with (tmp_path / "file").open("wb") as file:
            begun = [engine.begin(file, results.append) for _ in range(UNDER_WAY_MAX + 3)]
            assert sum(begun) == UNDER_WAY_MAX
            engine.submit()
            async with asyncio.timeout(PATIENCE_S):
                while len(results) < UNDER_WAY_MAX:
                    await asyncio.sleep(0)
            assert engine.begin(file, results.append)
        assert not any(results)

    _in_loop(test)


def test_one_who_fails_when_it_is_told_takes_nobody_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: asyncio.Queue[int] = asyncio.Queue()

        def fail(_: int) -> None:
            results.put_nowait(1)
            raise RuntimeError("of one who waited")

        with (tmp_path / "file").open("wb") as file:
            assert engine.begin(file, fail)
            assert engine.begin(file, results.put_nowait)
            engine.submit()
            async with asyncio.timeout(PATIENCE_S):  # either may be told first
                assert sorted([await results.get(), await results.get()]) == [0, 1]

    _in_loop(test)
    assert "one who waited for a sync has failed" in caplog.text


async def _engines(name: str, to_release: AsyncExitStack) -> Mapping[str, SyncEngine]:
    return sync_engines(asyncio.get_running_loop(), name, ["/a", "/b"], to_release)


def test_the_log_says_who_syncs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def count(name: str) -> int:
        async with AsyncExitStack() as to_release:
            return len(await _engines(name, to_release))

    assert [asyncio.run(count(name)) for name in ("thread", "aio", "auto")] == [0, 2, 2]
    assert [each.message for each in caplog.records if "synced by" in each.message] == [
        "logs are synced by threads",
        "logs are synced by aio",
        "logs are synced by threads, and by aio where many are synced at once",
    ]


def test_the_kernel_is_asked_when_it_is_needed_and_not_after_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        results: asyncio.Queue[int] = asyncio.Queue()
        async with AsyncExitStack() as to_release:
            engine = (await _engines("auto", to_release))["/a"]
            with (tmp_path / "file").open("wb") as file:
                engine.submit()
                assert engine.begin(file, results.put_nowait)
                engine.submit()
                assert await asyncio.wait_for(results.get(), PATIENCE_S) == 0
                await to_release.aclose()
                assert not engine.begin(file, results.put_nowait)
                engine.submit()

    asyncio.run(test())


def test_threads_take_over_where_the_kernel_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "abacus")

    async def test() -> None:
        async with AsyncExitStack() as to_release:
            engine = (await _engines("auto", to_release))["/a"]
            with (tmp_path / "file").open("wb") as file:
                assert not engine.begin(file, lambda _: None)
                assert not engine.begin(file, lambda _: None)
            with pytest.raises(OSError, match="no asynchronous fdatasync"):
                await _engines("aio", to_release)

    asyncio.run(test())
    assert caplog.text.count("the system allows no asynchronous syncs") == 1
