"""Each engine that syncs logs keeps the same promises: threads, and the kernel by Linux AIO."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.directory_threads import SyncThreads
from moldau.broker.group_commit import GroupCommit
from moldau.broker.kernel_syncs import UNDER_WAY_MAX, KernelSyncs, kernel_syncs
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


def test_the_kernel_names_the_error_or_does_not_begin(tmp_path: Path) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: asyncio.Queue[int] = asyncio.Queue()
        with (tmp_path / "file").open("wb") as file:
            file.write(b"v")
            file.flush()
            assert engine.begin(file.fileno(), results.put_nowait)
            assert results.empty()
            assert await asyncio.wait_for(results.get(), PATIENCE_S) == 0
            closed = file.fileno()
        assert not engine.begin(closed, results.put_nowait)
        reader, writer = os.pipe()
        began = engine.begin(writer, results.put_nowait)  # a pipe cannot be synced
        assert not began or await asyncio.wait_for(results.get(), PATIENCE_S) == errno.EINVAL
        os.close(reader)
        os.close(writer)

    _in_loop(test)


def test_no_more_is_begun_than_the_kernel_was_asked_to_hold(tmp_path: Path) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: list[int] = []
        with (tmp_path / "file").open("wb") as file:
            begun = [engine.begin(file.fileno(), results.append) for _ in range(UNDER_WAY_MAX + 3)]
            assert sum(begun) == UNDER_WAY_MAX
            async with asyncio.timeout(PATIENCE_S):
                while len(results) < UNDER_WAY_MAX:
                    await asyncio.sleep(0)
            assert engine.begin(file.fileno(), results.append)
        assert not any(results)

    _in_loop(test)


def test_one_who_fails_when_it_is_told_takes_nobody_along(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(engine: KernelSyncs) -> None:
        results: asyncio.Queue[int] = asyncio.Queue()

        def fail(_: int) -> None:
            results.put_nowait(1)
            raise RuntimeError("of one who waited")

        with (tmp_path / "file").open("wb") as file:
            assert engine.begin(file.fileno(), fail)
            assert engine.begin(file.fileno(), results.put_nowait)
            async with asyncio.timeout(PATIENCE_S):  # either may be told first
                assert sorted([await results.get(), await results.get()]) == [0, 1]

    _in_loop(test)
    assert "one who waited for a sync has failed" in caplog.text


def test_threads_take_over_where_the_kernel_is_not_asked_or_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def engines(name: str) -> int:
        async with AsyncExitStack() as to_release:
            return len(kernel_syncs(asyncio.get_running_loop(), name, ["/a", "/b"], to_release))

    assert asyncio.run(engines("auto")) == asyncio.run(engines("aio")) == 2
    assert "logs are synced by aio" in caplog.text
    assert asyncio.run(engines("thread")) == 0
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    caplog.clear()
    assert asyncio.run(engines("auto")) == 0
    assert "the system allows no asynchronous syncs" in caplog.text
    assert "logs are synced by threads" in caplog.text
    with pytest.raises(OSError, match="no asynchronous fdatasync"):
        asyncio.run(engines("aio"))
