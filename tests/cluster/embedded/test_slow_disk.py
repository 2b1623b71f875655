"""A disk that takes its time to sync the metadata holds up who changes the metadata, and nobody else.

Here a commit takes several times as long as a lease lasts, with SQLite's write lock held."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moldau.cluster.embedded.hung_writer import is_stopped, write_lock_holder
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.store import SessionState, StoreUnavailable
from tests.cluster.embedded.slow_disk import Disk
from tests.cluster.embedded.test_processes import gone, opened, run, running
from tests.cluster.store_contract import eventually, exists

pytestmark = pytest.mark.alone  # leases of less than a second

LEASE_MS = 600
SYNC_SECONDS = 3 * LEASE_MS / 1000
ON_LOOP_SHARE_MAX = 0.1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@asynccontextmanager
async def durable(path: str) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path, session_timeout_ms=LEASE_MS)
    try:
        yield store
    finally:
        await store.close()


async def largest_gap_during(seconds: float) -> float:
    """Between two turns of the loop."""
    largest, last = 0.0, time.monotonic()
    end = last + seconds
    while last < end:
        await asyncio.sleep(0.005)
        now = time.monotonic()
        largest, last = max(largest, now - last), now
    return largest


def test_the_loop_turns_and_reads_while_a_commit_waits_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with durable(path) as store, durable(path) as other:
            await store.create("/broker", ephemeral=True)
            disk.stand_still()
            write = asyncio.create_task(store.create("/a"))
            await asyncio.to_thread(disk.is_syncing.wait)
            gap = await largest_gap_during(SYNC_SECONDS)
            print("largest gap between two turns of the loop:", gap)  # noqa: T201
            assert gap < SYNC_SECONDS * ON_LOOP_SHARE_MAX
            assert not write.done()
            for each in (store, other):
                assert each.session_state is SessionState.CONNECTED
                assert await each.get("/broker") is not None
                assert await each.get("/a") is None
            disk.go_on()
            assert await write == "/a"
            await eventually(lambda: exists(other, "/a"), "what was written")

    run(steps)


def test_a_commit_that_nobody_waits_for_any_more_is_told_to_all(tmp_path: Path, disk: Disk) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with durable(path) as store, durable(path) as other:
            seen: list[str] = []
            store.watch("/a", seen.append)
            other.watch("/a", seen.append)
            disk.stand_still()
            write = asyncio.create_task(store.create("/a"))
            await asyncio.to_thread(disk.is_syncing.wait)
            write.cancel()
            await asyncio.wait([write])
            assert write.cancelled()
            disk.go_on()
            await eventually(lambda: seen == ["/a", "/a"], "both listeners")

    run(steps)


def test_who_waits_for_the_others_disk_is_told_so_and_goes_on_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "metadata.db")
    monkeypatch.setattr("moldau.cluster.embedded.store.WAIT_NS_MAX", 50_000_000)

    async def steps() -> None:
        async with opened(path) as store, running(path, LEASE_MS, "durable") as process:
            await process.ask("ephemeral", "/broker")
            await process.ask("slow_disk", SYNC_SECONDS)
            process.order("ensure", "/a")
            await eventually(lambda: write_lock_holder(path) == process.pid, "the lock")
            with pytest.raises(StoreUnavailable):
                await store.create("/b")
            assert await store.get("/broker") is not None
            assert await process.answer() is None

    run(steps)


def test_nobody_ends_the_session_of_a_process_that_waits_for_its_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, LEASE_MS, "durable") as process:
            await process.ask("ephemeral", "/broker")
            session = await process.ask("session")
            await process.ask("slow_disk", SYNC_SECONDS)
            started = time.monotonic()
            process.order("put", "/", "slowly")
            while (waited := time.monotonic() - started) < SYNC_SECONDS:
                assert await store.get("/broker") is not None, f"gone after {waited} s"
                await asyncio.sleep(0.01)
            assert await process.answer() == 1
            assert await process.ask("session") == session
            assert session[2] == [], "it never doubted its session"

    run(steps)


def test_a_loop_that_stands_still_longer_than_its_lease_loses_the_session(tmp_path: Path) -> None:
    """Its threads go on, and do not keep it alive: it serves nobody."""
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, LEASE_MS, "durable") as process:
            await process.ask("ephemeral", "/broker")
            process.order("hang", 30 * LEASE_MS / 1000)
            started = time.monotonic()
            await eventually(lambda: gone(store, "/broker"), "the end of the session")
            assert LEASE_MS / 2000 < time.monotonic() - started < 10 * LEASE_MS / 1000

    run(steps)


def test_a_loop_that_stands_still_for_less_than_its_lease_keeps_the_session(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, 5 * LEASE_MS, "durable") as process:
            await process.ask("ephemeral", "/broker")
            session = await process.ask("session")
            await process.ask("hang", 4 * LEASE_MS / 1000)
            assert await process.ask("session") == session
            assert await store.get("/broker") is not None

    run(steps)


def test_a_process_that_holds_the_lock_and_is_not_stopped_is_not_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, LEASE_MS) as process:
            await process.ask("ephemeral", "/broker")
            process.order("hang_inside_a_transaction", 4 * LEASE_MS / 1000)
            await eventually(lambda: write_lock_holder(path) == process.pid, "the lock")
            assert not is_stopped(process.pid)
            assert await process.answer() is None, "it lives and has let go of the lock"
            await store.create("/written", b"after it let go")

    run(steps)


def test_a_writer_that_sees_the_lock_taken_leaves_the_thread_to_others(tmp_path: Path) -> None:
    """Waiting for another process happens on the loop: what ends a dead process's session must not queue behind it."""
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with durable(path) as store:
            holder = sqlite3.connect(path, isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            write = asyncio.create_task(store.create("/a"))
            assert await asyncio.wait_for(store._writer.do(lambda tree: tree.changes()), 1) == 0
            assert not write.done()
            holder.execute("ROLLBACK")
            await write
            holder.close()

    run(steps)
