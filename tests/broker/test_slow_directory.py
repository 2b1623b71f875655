"""A disk that hardly answers holds up what is written to it, and nothing else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.broker.broker import Broker
from moldau.broker.directory_threads import ReadThreads
from moldau.core.broker_config import BrokerConfig
from moldau.core.files import FileRegion, OnResult, SyncEngine
from moldau.core.memory_files import MemoryFiles
from moldau.core.real_files import RealFile, RealFiles
from moldau.log.log import Log
from moldau.records.batch import Record, build_batch
from moldau.replication.durability import ACKS_ALL
from moldau.testing import broker
from tests.broker.test_lifecycle import in_loop

PATIENCE_S = 20.0
PRODUCE_VERSION = 9
ROUNDS = 20
"""More than there are threads, of whatever kind."""


class StuckDisk:
    """Below `path` nothing can be made durable until `release`."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._released = threading.Event()
        self._released.set()
        self._later: list[Callable[[], object]] = []

    def hold(self) -> None:
        self._released.clear()

    def release(self) -> None:
        """Let all go on; from the loop, if it has syncs of the kernel's to wait for."""
        self._released.set()
        while self._later:
            self._later.pop()()

    def is_held(self, path: str) -> bool:
        return path.startswith(self._path) and not self._released.is_set()

    def keep(self, begin: Callable[[], object]) -> None:
        self._later.append(begin)

    def wait(self, path: str) -> None:
        if path.startswith(self._path):
            self._released.wait(PATIENCE_S)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckDisk]:
    """That of the directory `slow`."""
    disk = StuckDisk(tmp_path / "slow")
    sync, sync_later, write = RealFile.sync, RealFile.sync_later, RealFiles.write_atomically

    def slow_sync(file: RealFile) -> None:
        disk.wait(file.path)
        sync(file)

    def slow_sync_later(file: RealFile, engine: SyncEngine, then: OnResult) -> bool:
        if not disk.is_held(file.path):
            return sync_later(file, engine, then)

        def begin() -> None:
            sync_later(file, engine, then)
            engine.submit()

        disk.keep(begin)
        return True

    def slow_write(files: RealFiles, path: str, data: bytes) -> None:
        disk.wait(path)
        write(files, path, data)

    monkeypatch.setattr(RealFile, "sync", slow_sync)
    monkeypatch.setattr(RealFile, "sync_later", slow_sync_later)
    monkeypatch.setattr(RealFiles, "write_atomically", slow_write)
    yield disk
    disk.release()


@pytest.mark.parametrize("engine", ["thread", "aio"])
@in_loop
async def test_a_slow_directory_holds_up_only_its_own(tmp_path: Path, disk: StuckDisk, engine: str) -> None:
    started = Broker(
        BrokerConfig.parse(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": f"{tmp_path}/slow,{tmp_path}/quick",
                "metadata.store.path": f"{tmp_path}/metadata.sqlite",
                "log.flush.engine": engine,
            }
        )[0]
    )
    await started.start()
    services, housekeeping = started.services, started._running.housekeeping
    await services.metadata.create_topic("t", [[started.broker_id]] * 2)
    partitions = [services.replicas.get("t", index) for index in (0, 1)]
    for partition in partitions:
        partition.append(build_batch([Record(0, 0, None, b"v")]), PRODUCE_VERSION, ACKS_ALL, services.clock.now_ms())
    slow, quick = sorted((partition.log for partition in partitions), key=_is_quick)
    disk.hold()
    waiting = [services.durability.when_durable([slow], ACKS_ALL)]
    for _ in range(ROUNDS):
        housekeeping._checkpoint()
        housekeeping._checkpoint_marks()
        housekeeping._flush_due()
        await asyncio.wait_for(_commit(started, quick), PATIENCE_S / 2)
    waiting += [services.durability.when_durable(logs, ACKS_ALL) for logs in ([slow], [quick, slow])]
    await asyncio.wait_for(_commit(started, quick), PATIENCE_S / 2)
    chores = started._running.ground.directory_threads._running
    await asyncio.wait([each for (_, path), each in chores.items() if path.endswith("quick")], timeout=PATIENCE_S / 2)
    assert {path: each.done() for (_, path), each in chores.items()} == {
        f"{tmp_path}/slow": False,
        f"{tmp_path}/quick": True,
    }
    assert (tmp_path / "quick" / "replication-offset-checkpoint").exists()
    assert not any(each is None or each.done() for each in waiting)
    disk.release()
    assert [await each for each in waiting if each is not None] == [frozenset()] * 3
    await started.stop()


def test_a_producer_is_held_up_only_where_its_partition_is_slow(tmp_path: Path, disk: StuckDisk) -> None:
    """Two producers: on one connection answers come in the order of their requests."""
    properties = {"num.partitions": "2", "log.flush.policy": "group", "log.flush.engine": "thread"}
    with broker(properties, data=f"{tmp_path}/slow,{tmp_path}/quick") as kafka:
        settings = {"bootstrap.servers": kafka.bootstrap, "acks": "all", "linger.ms": 0}
        producers = [Producer(settings), Producer(settings)]
        for partition, producer in enumerate(producers):
            producer.produce("t", b"v", partition=partition)
            assert producer.flush(PATIENCE_S) == 0
        (directory,) = (tmp_path / "slow").glob("t-*")
        slow = int(directory.name == "t-1")
        disk.hold()
        delivered: list[object] = []
        producers[slow].produce("t", b"v", partition=slow, on_delivery=lambda *told: delivered.append(told))
        for _ in range(ROUNDS):
            producers[1 - slow].produce("t", b"v", partition=1 - slow)
            assert producers[1 - slow].flush(PATIENCE_S / 2) == 0, "the quick directory is held up, too"
        producers[slow].poll(0)
        assert not delivered
        disk.release()
        assert producers[slow].flush(PATIENCE_S) == 0


def _is_quick(log: Log) -> bool:
    return "/quick/" in log.directory


async def _commit(broker: Broker, log: Log) -> None:
    committing = broker.services.durability.when_durable([log], ACKS_ALL)
    assert committing is not None
    assert await committing == frozenset()


def test_reads_from_a_slow_directory_leave_threads_to_the_others() -> None:
    released, threads = threading.Event(), ReadThreads(["/slow", "/quick"])

    def read(region: FileRegion) -> str:
        if region.file.path.startswith("/slow"):
            released.wait(PATIENCE_S)
        return region.file.path

    def region_of(path: str) -> FileRegion:
        files.make_directory(path.rpartition("/")[0])
        return FileRegion(files.open(path, create=True), 0, 0)

    files = MemoryFiles()
    slow = [threads.submit(read, region_of("/slow/t-0/0.log")) for _ in range(ROUNDS)]
    assert threads.submit(read, region_of("/quick/t-1/0.log")).result(PATIENCE_S / 2) == "/quick/t-1/0.log"
    assert not any(each.done() for each in slow)
    released.set()
    assert {each.result(PATIENCE_S) for each in slow} == {"/slow/t-0/0.log"}
    threads.shutdown()
