"""The SQLite store keeps the contract, and what it was told survives."""

import asyncio
import errno
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cluster.embedded import store as embedded
from moldau.cluster.embedded import tree as embedded_tree
from moldau.cluster.embedded.sessions import Lease, SessionDirectory
from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.store import Create, MetadataStore, NodeExists, SessionLost, SessionState, StoreUnavailable
from moldau.core.invariants import InvariantError
from tests.cluster.store_contract import StoreContract, eventually

TIMEOUT_MS = 18_000
SHORT_MS = 1000
NO_TICK_MS = 3_600_000
"""A lease so long that nothing is found by looking now and then: only by being told."""


class TestEmbeddedStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], MetadataStore]:
        self.path = str(tmp_path / "metadata.db")
        return lambda: EmbeddedStore(self.path, durable=False, session_timeout_ms=NO_TICK_MS)

    async def expire(self, store: MetadataStore) -> None:
        judge = EmbeddedStore(self.path, durable=False)
        end_session(judge, store.session_id)
        await judge.close()


class TestEmbeddedStoreThatSyncs(TestEmbeddedStore):
    """Its writes are made in a thread."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], MetadataStore]:
        self.path = str(tmp_path / "metadata.db")
        return lambda: EmbeddedStore(self.path, session_timeout_ms=NO_TICK_MS)


def end_session(judge: EmbeddedStore, session: int) -> None:
    """Let `judge` end another session, whatever its lease says."""
    with judge._tree.transaction():
        judge._tree.log(judge._tree.end_sessions([session]))
    judge._announce()


def test_the_store_lives_in_memory_too() -> None:
    async def steps() -> None:
        store = EmbeddedStore(":memory:")
        await store.create("/a")
        assert await store.children("/") == ["a"]
        await store.close()

    asyncio.run(steps())


def test_durable_means_that_a_commit_is_synced(tmp_path: Path) -> None:
    def synchronous(store: EmbeddedStore) -> int:
        (level,) = store._writer.tree._database.execute("PRAGMA synchronous").fetchone()
        return int(level)

    assert synchronous(EmbeddedStore(str(tmp_path / "a.db"))) == 2
    assert synchronous(EmbeddedStore(str(tmp_path / "b.db"), durable=False)) == 0


def test_a_file_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InvariantError, match="schema 99"):
        EmbeddedStore(path)


def test_a_failed_multi_leaves_no_transaction_open() -> None:
    async def steps() -> None:
        store = EmbeddedStore(":memory:")
        await store.create("/a")
        with pytest.raises(NodeExists):
            await store.multi([Create("/b"), Create("/a")])
        await store.create("/b")
        await store.close()

    asyncio.run(steps())


def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    with sqlite3.connect(path) as database:
        database.executescript(embedded_tree._FIRST_SCHEMA)
        database.execute("INSERT INTO node VALUES ('/kept', '/', x'01', 7, 3, 0, NULL)")
        database.execute("INSERT INTO node VALUES ('/broker', '/', x'', 0, 4, 0, 1)")
        database.execute("PRAGMA user_version = 1")
    database.close()

    async def steps() -> None:
        for _ in range(2):
            store = EmbeddedStore(path)
            assert await store.children("/") == ["kept"]
            node = await store.get("/kept")
            assert node is not None
            assert (node.data, node.version, node.created) == (b"\1", 7, 3)
            await store.close()

    asyncio.run(steps())


def test_nobody_else_may_read_the_tree(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = EmbeddedStore(str(path))
    sessions = Path(f"{path}-sessions")
    modes = {entry: stat.S_IMODE(entry.stat().st_mode) for entry in (path, Path(f"{path}-wal"), sessions)}
    assert modes == {path: 0o600, Path(f"{path}-wal"): 0o600, sessions: 0o700}
    asyncio.run(store.close())


def test_a_directory_may_lie_deeper_than_a_socket_address_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    path = str(deep / "metadata.db")

    async def steps() -> None:
        seen: list[str] = []
        first, second = EmbeddedStore(path), EmbeddedStore(path)
        first.watch("/a", seen.append)
        await second.create("/a")
        await eventually(lambda: seen == ["/a"], "the listener of the first session")
        await first.close()
        await second.close()

    asyncio.run(steps())


def test_closing_leaves_no_files_of_the_session(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    asyncio.run(EmbeddedStore(str(path)).close())
    assert list(Path(f"{path}-sessions").iterdir()) == []


def test_a_store_opened_before_there_is_a_loop_lives_in_the_one_that_asks(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    first, second = EmbeddedStore(path), EmbeddedStore(path)
    seen: list[str] = []
    first.watch("/", seen.append)

    async def steps(name: str) -> None:
        await first.get("/")
        await second.create(name)
        await eventually(lambda: name in seen, "the listener of the first session")

    asyncio.run(steps("/a"))
    asyncio.run(steps("/b"))
    asyncio.run(first.close())
    asyncio.run(second.close())


def test_a_writer_waits_for_another_process_without_holding_up_the_loop(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        store = EmbeddedStore(path)
        await store.create("/a")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writes = [asyncio.create_task(store.put("/a", data)) for data in (b"1", b"2")]
        await asyncio.sleep(0.02)
        assert await store.get("/a") is not None  # readers do not wait
        assert not any(write.done() for write in writes)
        other.execute("COMMIT")
        assert await asyncio.gather(*writes) == [1, 2]  # in the order of the calls
        other.close()
        await store.close()

    asyncio.run(steps())


def test_waiting_for_another_process_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "metadata.db")
    monkeypatch.setattr(embedded, "WAIT_NS_MAX", 20_000_000)

    async def steps() -> None:
        store = EmbeddedStore(path)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await store.create("/a")
        assert store.session_state is SessionState.CONNECTED
        with pytest.raises(StoreUnavailable):
            EmbeddedStore(path)
        other.execute("COMMIT")
        assert await store.create("/a") == "/a"
        other.close()
        await store.close()

    asyncio.run(steps())


def test_who_has_fallen_too_far_behind_is_told_to_read_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "metadata.db")
    monkeypatch.setattr(embedded_tree, "CHANGES_MAX", 10)

    async def steps() -> None:
        seen: list[str] = []
        writer, reader = EmbeddedStore(path, durable=False), EmbeddedStore(path, durable=False)
        await writer.create("/a")
        await reader.get("/a")
        await eventually(lambda: reader._delivered_changes == 1, "the first change")
        reader.watch("/a", seen.append)
        for number in range(30):  # without letting the reader run
            await writer.create(f"/a/{number}")
        await eventually(lambda: bool(seen), "the listener")
        assert seen == ["/a"]
        (kept,) = writer._tree._database.execute("SELECT count(*) FROM change").fetchone()
        assert kept == 10
        await writer.create("/a/last")
        await eventually(lambda: seen == ["/a", "/a/last"], "the next change")
        await reader.close()
        await writer.close()

    asyncio.run(steps())


def test_a_session_alone_keeps_no_change_log() -> None:
    async def steps() -> None:
        store = EmbeddedStore(":memory:")
        await store.create("/a")
        assert store._tree._database.execute("SELECT count(*) FROM change").fetchone() == (0,)
        await store.close()

    asyncio.run(steps())


def test_a_change_reaches_a_session_that_its_maker_has_not_noticed_yet(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        seen: list[str] = []
        writer = EmbeddedStore(path, session_timeout_ms=NO_TICK_MS)
        reader = EmbeddedStore(path, session_timeout_ms=NO_TICK_MS)
        reader.watch("/a", seen.append)
        await writer.create("/a")  # the loop has not run since the reader came
        await eventually(lambda: seen == ["/a"], "the reader's listener")
        await reader.close()
        await writer.close()

    asyncio.run(steps())


def test_a_write_finds_out_in_its_transaction_that_the_session_was_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        ghost, judge = EmbeddedStore(path), EmbeddedStore(path)
        states: list[SessionState] = []
        ghost.on_session(states.append)
        end_session(judge, ghost.session_id)
        with pytest.raises(SessionLost):  # though its lease is good, and the loop has not run since
            await ghost.create("/written")
        assert states == [SessionState.LOST]
        assert await judge.get("/written") is None
        await judge.close()
        await ghost.close()

    asyncio.run(steps())


def test_a_lease_is_renewed_only_before_it_has_run_out(tmp_path: Path) -> None:
    now = [0]
    lease = Lease(str(tmp_path / "1.lock"), 100, lambda: now[0])
    now[0] = 100
    assert lease.renew()
    assert lease.until == 200
    now[0] = 201
    assert not lease.renew()
    assert (tmp_path / "1.lock").read_bytes() == (200).to_bytes(8, "little")


def test_a_renewal_during_which_the_lease_ran_out_does_not_count(tmp_path: Path) -> None:
    times = iter([0, 99, 99, 101, 101])  # stopped in the middle of `renew`
    lease = Lease(str(tmp_path / "1.lock"), 100, lambda: next(times))
    assert not lease.renew()
    assert lease.has_run_out()


class Sleepers:
    """Sessions of one tree that share a clock which only moves by hand."""

    def __init__(self, path: Path, count: int) -> None:
        self.now_ns = 1_000_000_000_000
        self.stores = [
            EmbeddedStore(str(path), durable=False, session_timeout_ms=TIMEOUT_MS, clock=lambda: self.now_ns)
            for _ in range(count)
        ]

    def sleep_ms(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * 1_000_000

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


async def kept_alive(store: EmbeddedStore) -> None:
    """What a thread and the loop do now and then, done now."""
    assert store._membership is not None
    store._membership.renew()
    await store._keep_alive()


def test_a_session_that_overslept_says_so_before_anything_else(tmp_path: Path) -> None:
    async def steps() -> None:
        world = Sleepers(tmp_path / "metadata.db", 2)
        sleeper, _other = world.stores
        states: list[SessionState] = []
        sleeper.on_session(states.append)
        told = []
        for milliseconds in (TIMEOUT_MS, 1):
            world.sleep_ms(milliseconds)
            told.append(sleeper.session_state)
        await sleeper.get("/")  # asks the store: nobody has ended the session
        told.append(sleeper.session_state)
        assert told == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        await world.close()

    asyncio.run(steps())


def test_when_all_overslept_nobody_is_given_up(tmp_path: Path) -> None:
    async def steps() -> None:
        world = Sleepers(tmp_path / "metadata.db", 3)
        world.sleep_ms(2 * TIMEOUT_MS)
        for store in world.stores:
            await kept_alive(store)
        world.sleep_ms(TIMEOUT_MS // 3)
        for store in world.stores:
            await kept_alive(store)
            await store.get("/")
        assert len(world.stores[0]._tree.sessions()) == 3
        await world.close()

    asyncio.run(steps())


def test_a_lease_that_runs_out_just_after_the_look_is_looked_at_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        world = Sleepers(tmp_path / "metadata.db", 2)
        _sleeper, awake = world.stores
        await awake.get("/")
        for milliseconds in (TIMEOUT_MS // 2, TIMEOUT_MS // 2 - 1):
            world.sleep_ms(milliseconds)
            await kept_alive(awake)
        monkeypatch.setattr(awake, "_catch_up", lambda: world.sleep_ms(2))
        await kept_alive(awake)
        assert awake._tick is not None
        assert awake._tick.when() - asyncio.get_running_loop().time() < 1.0
        await world.close()

    asyncio.run(steps())


@pytest.mark.parametrize("call", ["get", "create"])
def test_a_session_that_overslept_alone_is_given_up(tmp_path: Path, call: str) -> None:
    async def steps() -> None:
        world = Sleepers(tmp_path / "metadata.db", 2)
        sleeper, awake = world.stores
        await sleeper.create("/broker", ephemeral=True)
        for _ in range(4):
            world.sleep_ms(TIMEOUT_MS // 3)
            await kept_alive(awake)
        assert await awake.get("/broker") is None
        with pytest.raises(SessionLost):
            await (sleeper.get("/") if call == "get" else sleeper.create("/ghost"))
        assert await awake.get("/ghost") is None
        assert sleeper.session_state is SessionState.LOST
        await sleeper.reconnect()
        await sleeper.create("/broker", ephemeral=True)
        assert await awake.get("/broker") is not None
        await world.close()

    asyncio.run(steps())


def test_a_moment_without_descriptors_does_not_end_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "metadata.db")
    monkeypatch.setattr(embedded, "FAILED_RETRY_SECONDS", 0.001)
    lease_until, refused, is_short = SessionDirectory.lease_until, [], False

    def scarce(self: SessionDirectory, session: int) -> int:
        if is_short:
            refused.append(session)
            raise OSError(errno.EMFILE, "Too many open files")
        return lease_until(self, session)

    monkeypatch.setattr(SessionDirectory, "lease_until", scarce)

    async def steps() -> None:
        nonlocal is_short
        first, second = (EmbeddedStore(path, durable=False, session_timeout_ms=SHORT_MS) for _ in range(2))
        await first.get("/")
        is_short = True
        await eventually(lambda: {first.session_id, second.session_id} == set(refused), "looks at the others")
        is_short = False
        leases = {lease_of(path, first.session_id)}

        def is_renewed() -> bool:
            leases.add(lease_of(path, first.session_id))
            return len(leases) > 3

        await eventually(is_renewed, "renewals after the shortage")
        assert {first.session_state, second.session_state} == {SessionState.CONNECTED}
        await second.close()
        await first.close()

    asyncio.run(steps())


def lease_of(path: str, session: int) -> int:
    return int.from_bytes(Path(f"{path}-sessions", f"{session}.lock").read_bytes(), "little")
