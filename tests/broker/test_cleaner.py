"""Compaction in a running broker: a child process cleans, the broker goes on serving."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pytest

from moldau.broker.cleaner import ChildProcess, Cleaner
from moldau.core.real_files import RealFiles
from moldau.log.compaction.cleaner import clean
from moldau.log.compaction.job import CleaningError, CleanJob, CleanResult, CorruptLogError
from moldau.log.log import Log
from moldau.records.batch import Record, build_batch, iter_records, split_batches
from moldau.requests.parts import Parts
from moldau.testing import async_broker

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "8000", "min.cleanable.dirty.ratio": "0.1"}
PRODUCE_VERSION = 9
KEYS = 10


Parameters = ParamSpec("Parameters")


def in_loop(test: Callable[Parameters, Coroutine[None, None, None]]) -> Callable[Parameters, None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class InThisProcess:
    """A worker that waits until it may go on."""

    worker_id = 1

    def __init__(self) -> None:
        self.has_job = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.jobs: list[CleanJob] = []
        self.is_killed = False
        self.error: CleaningError | None = None

    async def run(self, job: CleanJob, bytes_per_second: float) -> CleanResult:
        assert bytes_per_second > 1e300
        self.jobs.append(job)
        self.has_job.set()
        await self.may_go_on.wait()
        if self.is_killed:
            raise CleaningError("killed")
        if self.error is not None:
            raise self.error
        try:
            return clean(RealFiles(), job)
        except OSError as error:
            raise CleaningError(str(error)) from error

    def kill(self) -> None:
        self.is_killed = True
        self.may_go_on.set()

    async def close(self) -> None:
        pass


@asynccontextmanager
async def cleaning_of(parts: Parts, worker: InThisProcess | None = None) -> AsyncIterator[Cleaner]:
    async def given() -> InThisProcess:
        assert worker is not None
        return worker

    with ThreadPoolExecutor(1) as threads:
        cleaning = Cleaner(parts, RealFiles(), threads, ChildProcess.start if worker is None else given)
        try:
            yield cleaning
        finally:
            await cleaning.stop()


async def make_topic(parts: Parts, name: str, configs: dict[str, str] | None = None) -> Log:
    await parts.metadata.create_topic(name, [[parts.broker_id]], configs or COMPACTED)
    return parts.replicas.get(name, 0).log


def put(parts: Parts, topic: str, count: int, first: int = 0) -> None:
    partition = parts.replicas.get(topic, 0)
    now_ms = parts.clock.now_ms()
    for number in range(first, first + count):
        batch = build_batch([Record(0, now_ms, b"%d" % (number % KEYS), b"%d " % number * 20)])
        partition.append(batch, produce_version=PRODUCE_VERSION, acks=1, now_ms=now_ms)


def read(log: Log) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while (region := log.read(offset, 1 << 20, log.log_end_offset)) is not None:
        for header, data in split_batches(region.read()):
            found += iter_records(data)
            offset = header.next_offset
    return found


def last_numbers(log: Log) -> dict[bytes | None, int]:
    return {record.key: int((record.value or b"").split()[0]) for record in read(log)}


def leftovers(log: Log) -> list[str]:
    return [path.name for path in Path(log.directory).iterdir() if path.name.endswith((".cleaned", ".swap"))]


@in_loop
async def test_a_child_process_cleans_and_a_restart_knows(tmp_path: Path) -> None:
    async with async_broker(data=tmp_path) as kafka:
        parts = kafka.broker.parts
        log = await make_topic(parts, "table")
        put(parts, "table", 500)
        async with cleaning_of(parts) as cleaning:
            cleaning.look()
            put(parts, "table", 100, first=500)
            await cleaning.idle()
        assert last_numbers(log) == {b"%d" % (number % KEYS): number for number in range(590, 600)}
        assert len(read(log)) < 250
        assert log.clean_offset > 400
        assert leftovers(log) == []
        checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
        assert checkpoint == f"0\n1\ntable 0 {log.clean_offset}\n"
        before, clean_offset = read(log), log.clean_offset
    async with async_broker(data=tmp_path) as kafka:
        log = kafka.broker.parts.replicas.get("table", 0).log
        assert (read(log), log.clean_offset) == (before, clean_offset)


@in_loop
async def test_a_broker_cleans_by_itself_at_its_interval() -> None:
    async with async_broker({"log.cleaner.backoff.ms": "5"}) as kafka, asyncio.timeout(30):
        parts = kafka.broker.parts
        log = await make_topic(parts, "table")
        put(parts, "table", 300)
        while log.clean_offset == 0:
            await asyncio.sleep(0)
        assert last_numbers(log) == {b"%d" % (number % KEYS): number for number in range(290, 300)}


@in_loop
async def test_the_dirtiest_log_is_cleaned_first_and_nothing_twice() -> None:
    async with async_broker() as kafka:
        parts = kafka.broker.parts
        worker = InThisProcess()
        worker.may_go_on.set()
        async with cleaning_of(parts, worker) as cleaning:
            for topic in ("one", "two"):
                await make_topic(parts, topic)
            await make_topic(parts, "plain", {"segment.bytes": "8000"})
            for topic in ("one", "two", "plain"):
                put(parts, topic, 300)
            cleaning.look()
            await cleaning.idle()
            put(parts, "one", 400)
            put(parts, "two", 100)
            worker.jobs.clear()
            cleaning.look()
            await cleaning.idle()
            assert [Path(job.directory).name for job in worker.jobs] == ["one-0", "two-0"]
            cleaning.look()
            await cleaning.idle()
            assert len(worker.jobs) == 2


@in_loop
async def test_a_topic_may_be_deleted_while_it_is_cleaned() -> None:
    async with async_broker() as kafka:
        parts = kafka.broker.parts
        worker = InThisProcess()
        async with cleaning_of(parts, worker) as cleaning:
            await make_topic(parts, "table")
            put(parts, "table", 300)
            cleaning.look()
            await worker.has_job.wait()
            await parts.metadata.delete_topic("table")
            await make_topic(parts, "table")
            put(parts, "table", 30)
            worker.error = CleaningError("No such file")
            worker.may_go_on.set()
            await cleaning.idle()
            log = parts.replicas.get("table", 0).log
            assert len(read(log)) == 30
            assert log.failure is None


@in_loop
async def test_retention_may_take_segments_that_are_being_cleaned() -> None:
    async with async_broker() as kafka:
        parts = kafka.broker.parts
        worker = InThisProcess()
        async with cleaning_of(parts, worker) as cleaning:
            log = await make_topic(parts, "table")
            put(parts, "table", 300)
            cleaning.look()
            await worker.has_job.wait()
            log.advance_log_start(150)
            log.delete_expired(parts.clock.now_ms(), log.log_end_offset)
            worker.may_go_on.set()
            await cleaning.idle()
            assert log.failure is None
            assert [record.offset for record in read(log)][-150:] == list(range(150, 300))
            assert leftovers(log) == []


@in_loop
async def test_a_log_that_makes_no_sense_is_left_alone_and_the_others_are_cleaned() -> None:
    async with async_broker() as kafka:
        parts = kafka.broker.parts
        worker = InThisProcess()
        async with cleaning_of(parts, worker) as cleaning:
            await make_topic(parts, "table")
            put(parts, "table", 300)
            worker.error = CorruptLogError("checksum")
            worker.may_go_on.set()
            cleaning.look()
            await cleaning.idle()
            worker.error = None
            good = await make_topic(parts, "good")
            put(parts, "good", 300)
            cleaning.look()
            await cleaning.idle()
            assert [Path(job.directory).name for job in worker.jobs] == ["table-0", "good-0"]
            assert good.clean_offset > 0


@in_loop
async def test_cleaning_stops_with_the_broker() -> None:
    async with async_broker() as kafka:
        parts = kafka.broker.parts
        worker = InThisProcess()
        async with cleaning_of(parts, worker) as cleaning:
            log = await make_topic(parts, "table")
            put(parts, "table", 300)
            cleaning.look()
            await worker.has_job.wait()
            await cleaning.stop()
            assert worker.is_killed
            assert len(read(log)) == 300
            cleaning.look()
            await cleaning.idle()
            assert len(worker.jobs) == 1


@in_loop
async def test_a_child_that_is_killed_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ChildProcess.run

    async def killed(child: ChildProcess, job: CleanJob, bytes_per_second: float) -> CleanResult:
        child.kill()  # here: a moment later it may have cleaned already
        return await run(child, job, bytes_per_second)

    async with async_broker() as kafka:
        parts = kafka.broker.parts
        log = await make_topic(parts, "table")
        put(parts, "table", 300)
        async with cleaning_of(parts) as cleaning:
            with monkeypatch.context() as deadly:
                deadly.setattr(ChildProcess, "run", killed)
                cleaning.look()
                await cleaning.idle()
            assert len(read(log)) == 300
            cleaning.look()
            await cleaning.idle()
            assert len(read(log)) < 300


@in_loop
async def test_nothing_is_cleaned_where_it_is_switched_off() -> None:
    async with async_broker({"log.cleaner.enable": "false"}) as kafka:
        parts = kafka.broker.parts
        log = await make_topic(parts, "table")
        put(parts, "table", 300)
        async with cleaning_of(parts) as cleaning:
            cleaning.look()
            await cleaning.idle()
        assert len(read(log)) == 300
