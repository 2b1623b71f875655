"""The ZooKeeper store keeps the contract, over a real ensemble, and knows what it cannot know when members fail."""

import asyncio
import socket
import struct
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped, ConnectionLoss  # type: ignore[import-untyped]  # it has no types

from moldau.cluster.store import Create, MetadataStore, NoNode, Put, SessionLost, SessionState, StoreUnavailable
from moldau.cluster.zookeeper.session import REQUEST_BYTES_MAX, _Connection
from moldau.cluster.zookeeper.store import RequestTooLarge, ZooKeeperStore
from tests.cluster.store_contract import StoreContract, eventually
from tests.zookeeper_ensemble import SESSION_TIMEOUT_MAX_MS, Ensemble, Member

TIMEOUT_MS = 3_000
"""For what happens when it is over: only where nothing else runs."""
PATIENT_MS = SESSION_TIMEOUT_MAX_MS


@pytest.fixture
def address(zookeeper: Ensemble) -> str:
    """The ensemble, with a chroot that no other test uses and that does not exist yet."""
    return f"{zookeeper.connect}/test-{uuid.uuid4().hex}"


class TestZooKeeperStore(StoreContract):
    @pytest.fixture
    def open_store(self, zookeeper: Ensemble, address: str) -> Callable[[], MetadataStore]:
        self.ensemble = zookeeper
        return lambda: ZooKeeperStore(address, PATIENT_MS)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        assert store._session is not None
        await asyncio.to_thread(self.ensemble.expire, *store._session._connection.credentials)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 120))


def member_of(store: ZooKeeperStore, ensemble: Ensemble) -> Member:
    """The one that the store is connected to."""
    assert store._session is not None
    port = store._session._connection._socket.getpeername()[1]
    return next(member for member in ensemble.members if member.port == port)


async def connected_to_a_follower(ensemble: Ensemble, address: str) -> ZooKeeperStore:
    while True:
        store = ZooKeeperStore(address, TIMEOUT_MS)
        await store.connect()
        if member_of(store, ensemble) is not ensemble.leader:
            return store
        await store.close()  # members are tried in random order


async def reaches(store: ZooKeeperStore) -> bool:
    with suppress(StoreUnavailable):
        await store.connect()
    return store.session_state is SessionState.CONNECTED


async def states_of(store: ZooKeeperStore) -> list[SessionState]:
    """Connect; the list grows with the session's states."""
    await store.connect()
    states: list[SessionState] = []
    store.on_session(states.append)
    return states


def test_the_session_and_its_writes_go_on_when_the_member_dies(zookeeper: Ensemble, address: str) -> None:
    async def steps() -> None:
        store = ZooKeeperStore(address, PATIENT_MS)
        states = await states_of(store)
        session_id = store.session_id
        await store.create("/mine", ephemeral=True)
        member_of(store, zookeeper).kill()
        await eventually(lambda: SessionState.SUSPENDED in states, "being told of the lost connection")
        assert await store.put("/mine", b"1", 0) == 1
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        await store.close()

    run(steps())


@pytest.mark.alone
def test_a_member_that_hangs_is_left_before_the_session_is_lost_however_many_requests_come(
    zookeeper: Ensemble, address: str
) -> None:
    async def steps() -> None:
        store = await connected_to_a_follower(zookeeper, address)
        states = await states_of(store)
        await store.create("/mine", ephemeral=True)
        member_of(store, zookeeper).pause()
        reads: list[asyncio.Task[object]] = []

        def answered() -> bool:
            reads.append(asyncio.create_task(store.get("/mine")))
            return SessionState.CONNECTED in states

        await eventually(answered, "another member")
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert all(await asyncio.gather(*reads))
        await store.close()

    run(steps())


@pytest.mark.alone
@pytest.mark.parametrize("fault", [Member.pause, Member.kill])
def test_who_is_cut_off_from_all_members_gives_its_session_up_by_its_own_clock(
    zookeeper: Ensemble, address: str, fault: Callable[[Member], None]
) -> None:
    async def steps() -> None:
        store = ZooKeeperStore(address, TIMEOUT_MS)
        states = await states_of(store)
        await store.create("/mine", ephemeral=True)
        old_id = store.session_id
        began = time.monotonic()
        for member in zookeeper.members:
            fault(member)
        under_way = asyncio.create_task(store.get("/mine"))
        await eventually(lambda: SessionState.LOST in states, "giving up")
        assert time.monotonic() - began < TIMEOUT_MS / 1000 + 1.0
        if fault is Member.kill:  # a connection to a process that hangs may be noticed as late as the session's end
            assert states[-2:] == [SessionState.SUSPENDED, SessionState.LOST]
        with pytest.raises(SessionLost):
            await under_way
        with pytest.raises(SessionLost):
            await store.create("/other")

        await asyncio.to_thread(zookeeper.heal)
        await store.reconnect()
        assert store.session_id != old_id
        await store.create("/mine", ephemeral=True)  # the old one does not stand in the way
        await store.close()

    run(steps())


@pytest.mark.alone
def test_without_any_member_connecting_fails_in_time_and_may_be_tried_again(zookeeper: Ensemble, address: str) -> None:
    async def steps() -> None:
        for member in zookeeper.members:
            member.pause()
        store = ZooKeeperStore(address, TIMEOUT_MS, connection_timeout_ms=100)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.connect()
        assert time.monotonic() - began < 1.0
        assert store.session_state is SessionState.LOST
        zookeeper.heal()
        await eventually(lambda: reaches(store), "a second try")
        await store.create("/a")
        await store.close()

    run(steps())


@pytest.mark.alone
def test_a_connection_that_is_being_tried_can_be_closed() -> None:
    async def steps() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            store = ZooKeeperStore(f"127.0.0.1:{nobody.getsockname()[1]}", PATIENT_MS)
            connecting = asyncio.create_task(store.connect())
            await eventually(lambda: store._beginning is not None, "the attempt")
            await asyncio.wait_for(store.close(), 1.0)
            with pytest.raises(StoreUnavailable):
                await connecting

    run(steps())


def test_a_write_without_an_answer_may_have_happened_and_one_that_was_not_sent_waits(
    zookeeper: Ensemble, address: str
) -> None:
    async def steps() -> None:
        store = ZooKeeperStore(address, PATIENT_MS)
        states = await states_of(store)
        await store.create("/a")
        for member in zookeeper.members:
            member.pause()
        # More than the kernel takes for a process that does not read, so some of it cannot be sent.
        writes = [asyncio.create_task(store.put("/a", bytes(400_000))) for _ in range(40)]
        reads = asyncio.create_task(store.get_many(["/a"] * 2000))
        await eventually(lambda: sent_and_stuck(store), "a full connection")
        zookeeper.kill()
        await eventually(lambda: SessionState.SUSPENDED in states, "being told of the lost connection")
        await asyncio.to_thread(zookeeper.heal)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        unknown = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
        versions = [outcome for outcome in outcomes if isinstance(outcome, int)]
        assert unknown
        assert versions
        assert len(unknown) + len(versions) == len(outcomes)
        assert all(await reads)
        assert SessionState.LOST not in states
        await store.close()

    run(steps())


def sent_and_stuck(store: ZooKeeperStore) -> bool:
    assert store._session is not None
    client = store._session._client
    return len(client._pending) > 0 and len(client._queue) > 0


def test_after_a_lost_connection_listeners_are_told_to_read_again_and_hear_what_follows(
    zookeeper: Ensemble, address: str
) -> None:
    async def steps() -> None:
        store, other = ZooKeeperStore(address, PATIENT_MS), ZooKeeperStore(address, PATIENT_MS)
        seen: list[str] = []
        states = await states_of(store)
        await store.create("/a")
        store.watch("/a", seen.append)
        member_of(store, zookeeper).kill()
        await eventually(lambda: "/a" in seen, "the watched path")
        assert SessionState.CONNECTED in states
        await other.create("/a/b")
        await eventually(lambda: "/a/b" in seen, "the watch of the new connection")
        await store.close()
        await other.close()

    run(steps())


def test_a_process_that_wakes_up_too_late_knows_at_once_that_its_session_is_lost(address: str) -> None:
    async def steps() -> None:
        store = ZooKeeperStore(address, PATIENT_MS)
        states = await states_of(store)
        assert store._session is not None
        store._session._connection.contact -= 2 * PATIENT_MS / 1000
        assert store.session_state is SessionState.LOST
        assert states == []
        with pytest.raises(SessionLost):
            await store.get("/")
        assert states == [SessionState.LOST]
        await store.reconnect()
        assert states == [SessionState.LOST, SessionState.CONNECTED]
        await store.close()

    run(steps())


def test_a_chroot_is_made_and_hides_everything_else(address: str) -> None:
    async def steps() -> None:
        root, inner = ZooKeeperStore(address, PATIENT_MS), ZooKeeperStore(f"{address}/deep/chroot/", PATIENT_MS)
        seen: list[str] = []
        inner.watch("/", seen.append)
        await inner.create("/a", b"inner")
        await root.create("/a", b"outer")
        node = await inner.get("/a")
        assert node is not None
        assert node.data == b"inner"
        await eventually(lambda: seen == ["/a"], "the inner change alone")
        assert await inner.children("/") == ["a"]
        assert await root.children("/deep/chroot") == ["a"]
        with pytest.raises(NoNode):
            await inner.children("/deep")
        await inner.close()
        await root.close()

    run(steps())


def test_a_request_may_be_a_mebibyte_and_no_more(address: str) -> None:
    async def steps() -> None:
        store = ZooKeeperStore(address, PATIENT_MS)
        half = REQUEST_BYTES_MAX // 2 - 200
        await store.multi([Create("/a", bytes(half)), Create("/b", bytes(half))])
        with pytest.raises(RequestTooLarge):
            await store.multi([Put("/a", bytes(half)), Put("/b", bytes(half + 500))])
        node = await store.get("/a")
        assert node is not None
        assert node.version == 0
        assert store.session_state is SessionState.CONNECTED
        await store.close()

    run(steps())


@pytest.mark.parametrize("pending", [[], [1]])
def test_an_answer_that_is_not_the_next_ends_the_connection_and_not_the_thread(pending: list[int]) -> None:
    connection = _Connection.__new__(_Connection)
    connection.client = SimpleNamespace(_pending=deque((None, None, xid) for xid in pending))
    answer = struct.pack("!iqi", 2, 7, 0)  # to request 2, transaction 7, no error
    with pytest.raises(ConnectionDropped, match="request 2"):
        connection._handle(answer)


def test_what_a_lost_connection_left_unanswered_fails_when_the_next_one_begins() -> None:
    failures: list[Exception] = []
    connection = _Connection.__new__(_Connection)
    unanswered = SimpleNamespace(set_exception=failures.append)
    connection.client = SimpleNamespace(_pending=deque([(None, None, 1), (None, unanswered, 2)]))
    connection._drop_unanswered()
    assert not connection.client._pending
    assert [type(failure) for failure in failures] == [ConnectionLoss]
