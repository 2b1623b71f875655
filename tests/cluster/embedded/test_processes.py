"""Several processes on one SQLite file: real ones, really killed and stopped."""

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.cluster.embedded.hung_writer import write_lock_holder
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.store import SessionState
from tests.cluster.store_contract import WAIT_SECONDS, eventually, exists

pytestmark = pytest.mark.alone  # leases of a second, and how soon others hear of things

ROOT = Path(__file__).parents[3]
LONG_MS = 18_000
SHORT_MS = 1000


class Process:
    """A worker, to be asked things."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), WAIT_SECONDS))

    def order(self, *command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def ask(self, *command: Any) -> Any:
        self.order(*command)
        return await self.answer()

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.wait_for(self._process.wait(), WAIT_SECONDS)


@asynccontextmanager
async def launched(path: str, session_timeout_ms: int = LONG_MS, *more: str) -> AsyncIterator[Process]:
    """A worker that has not yet said that it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.cluster.embedded.worker", path, str(session_timeout_ms), *more),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def running(path: str, session_timeout_ms: int = LONG_MS, *more: str) -> AsyncIterator[Process]:
    async with launched(path, session_timeout_ms, *more) as process:
        assert await process.answer() == "ready"
        yield process


@asynccontextmanager
async def opened(path: str, session_timeout_ms: int = LONG_MS) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path, durable=False, session_timeout_ms=session_timeout_ms)
    try:
        yield store
    finally:
        await store.close()


def run(steps: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(steps(), 3 * WAIT_SECONDS)

    asyncio.run(bounded())


def test_nodes_of_a_killed_process_are_gone_within_a_moment(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def kill_one(store: EmbeddedStore) -> float:
        async with running(path) as process:
            gone = asyncio.Event()
            await process.ask("ephemeral", "/broker")
            end = store.watch("/broker", lambda _path: gone.set())
            started = time.monotonic()
            process.send_signal(signal.SIGKILL)
            await asyncio.wait_for(gone.wait(), WAIT_SECONDS)
            seconds = time.monotonic() - started
            end()
            assert await store.get("/broker") is None
            return seconds

    async def steps() -> None:
        async with opened(path) as store:
            seconds = [await kill_one(store) for _ in range(5)]
            print("seconds from kill -9 to the listener:", sorted(seconds))  # noqa: T201
            assert sorted(seconds)[2] < 0.05
            assert max(seconds) < 0.5

    run(steps)


def test_every_process_hears_of_a_death_and_one_of_them_ends_the_session(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as first, opened(path) as second, opened(path) as third, running(path) as process:
            stores = (first, second, third)
            heard: list[list[str]] = [[] for _ in stores]
            await process.ask("ephemeral", "/broker")
            for store, seen in zip(stores, heard, strict=True):
                await store.get("/broker")
                store.watch("/broker", seen.append)
            process.send_signal(signal.SIGKILL)
            await eventually(lambda: heard == [["/broker"]] * 3, "all listeners, each once")

    run(steps)


def test_what_was_written_is_there_after_a_crash_of_all_and_ephemeral_nodes_are_not(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with running(path) as process:
            await process.ask("ensure", "/a/b")
            await process.ask("ephemeral", "/broker")
            process.send_signal(signal.SIGKILL)
            await process.ended()
        async with opened(path) as store:
            assert await store.children("/") == ["a"]
            assert await store.children("/a") == ["b"]
            assert sorted(entry.name for entry in Path(f"{path}-sessions").iterdir()) == ["2.lock", "2.socket"]

    run(steps)


def test_a_process_that_hangs_loses_its_session_and_begins_a_new_one(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, SHORT_MS) as process:
            await process.ask("ephemeral", "/broker")
            old_id, state, _ = await process.ask("session")
            assert state == SessionState.CONNECTED.value
            process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
            await eventually(lambda: gone(store, "/broker"), "the end of the session")
            assert SHORT_MS / 2000 < time.monotonic() - started < 10
            process.order("put", "/", "written by a ghost")
            process.order("get", "/")
            process.send_signal(signal.SIGCONT)
            assert await process.answer() == "SessionLost"
            assert await process.answer() == "SessionLost"
            node = await store.get("/")
            assert node is not None
            assert node.data == b""
            _, state, states = await process.ask("session")
            assert state == SessionState.LOST.value
            assert states[-1] == SessionState.LOST.value
            assert await process.ask("reconnect") > old_id
            assert await process.ask("ephemeral", "/broker") == "/broker"
            await eventually(lambda: exists(store, "/broker"), "the new session's node")
            assert store.session_state is SessionState.CONNECTED

    run(steps)


def test_a_process_that_hangs_alone_keeps_its_session(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with running(path, SHORT_MS) as process:
            await process.ask("ephemeral", "/broker")
            process.send_signal(signal.SIGSTOP)
            await lease_has_run_out(path, 1)
            process.send_signal(signal.SIGCONT)
            assert await process.ask("get", "/broker") == ""
            assert (await process.ask("session"))[1] == SessionState.CONNECTED.value

    run(steps)


def test_a_live_process_outlives_many_leases(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, SHORT_MS) as process:
            await process.ask("ephemeral", "/broker")
            leases = {lease_of(path, 2)}

            def renewed_five_times() -> bool:
                leases.add(lease_of(path, 2))
                return len(leases) > 5

            await eventually(renewed_five_times, "five renewals")
            assert await store.get("/broker") is not None
            assert await process.ask("get", "/broker") == ""

    run(steps)


def test_a_process_that_hangs_inside_a_transaction_does_not_stop_the_others_for_good(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path, SHORT_MS) as process:
            await process.ask("ephemeral", "/broker")
            process.order("stop_inside_a_transaction")
            await eventually(lambda: write_lock_holder(path) == process.pid, "the lock")
            await store.create("/written", b"by who is alive")
            await eventually(lambda: gone(store, "/broker"), "the end of the session")
            assert await process.ended() == -signal.SIGKILL

    run(steps)


def test_five_processes_count_and_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(opened(path))
            await store.create("/count", b"0")
            processes = await asyncio.gather(*(stack.enter_async_context(running(path)) for _ in range(5)))
            await asyncio.gather(*(process.ask("count", "/count", 100) for process in processes))
            node = await store.get("/count")
            assert node is not None
            assert (node.data, node.version) == (b"500", 500)

    run(steps)


def test_processes_that_are_killed_while_they_write_break_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)  # noqa: T201
    chance = random.Random(seed)
    counted = 0

    async def live_and_die(deaths: int) -> None:
        nonlocal counted
        for _ in range(deaths):
            async with running(path) as process:
                for _ in range(chance.randrange(1, 10)):
                    await process.ask("count", "/count", 5)
                    counted += 5
                process.order("count", "/count", 5)
                await asyncio.sleep(chance.random() / 100)  # anywhere inside what it does now
                process.send_signal(signal.SIGKILL)
                await process.ended()

    async def steps() -> None:
        async with opened(path) as store:
            await store.create("/count", b"0")
            await asyncio.gather(*(live_and_die(3) for _ in range(3)))
            node = await store.get("/count")
            assert node is not None
            assert counted <= node.version <= counted + 5 * 9
            assert int(node.data) == node.version
            await eventually(lambda: len(store._tree.sessions()) == 1, "the end of all other sessions")
            assert store._tree._database.execute("PRAGMA integrity_check").fetchone() == ("ok",)

    run(steps)


def test_processes_that_start_at_once_make_one_tree(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with AsyncExitStack() as stack:
            processes = [await stack.enter_async_context(launched(path)) for _ in range(4)]
            assert await asyncio.gather(*(process.answer() for process in processes)) == ["ready"] * 4
            ids = [(await process.ask("session"))[0] for process in processes]
            assert sorted(ids) == [1, 2, 3, 4]
            await asyncio.gather(*(process.ask("ensure", "/brokers/ids") for process in processes))
            for number, process in enumerate(processes):
                assert await process.ask("ephemeral", f"/brokers/ids/{number}") == f"/brokers/ids/{number}"
            store = await stack.enter_async_context(opened(path))
            assert await store.children("/brokers/ids") == ["0", "1", "2", "3"]

    run(steps)


def test_a_change_reaches_other_processes_in_milliseconds(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        async with opened(path) as store, running(path) as process:
            await process.ask("ensure", "/a")
            seconds = []
            for number in range(20):
                told = asyncio.Event()
                end = store.watch("/a", lambda _path, told=told: told.set())  # type: ignore[misc]
                started = time.monotonic()
                process.order("put", "/a", str(number))
                await asyncio.wait_for(told.wait(), WAIT_SECONDS)
                seconds.append(time.monotonic() - started)
                await process.answer()
                end()
            print("seconds from order to listener:", sorted(seconds))  # noqa: T201
            assert sorted(seconds)[10] < 0.05

    run(steps)


async def gone(store: EmbeddedStore, path: str) -> bool:
    return not await exists(store, path)


def lease_of(path: str, session: int) -> int:
    return int.from_bytes(Path(f"{path}-sessions", f"{session}.lock").read_bytes(), "little")


async def lease_has_run_out(path: str, session: int) -> None:
    await eventually(lambda: lease_of(path, session) < time.monotonic_ns(), "the end of the lease")
