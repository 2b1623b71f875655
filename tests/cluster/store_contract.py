"""The contract of every metadata store. A store's test module inherits `StoreContract` and says how to open one."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.cluster.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionLost,
    SessionState,
    ensure_paths,
    subtree,
)

Steps = Callable[[MetadataStore], Awaitable[None]]
SEVERAL = 3
WAIT_SECONDS = 20


async def eventually(condition: Callable[[], Awaitable[bool] | bool], what: str) -> None:
    """Return when `condition` holds; another session's writes arrive in their own time."""
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        held = condition()
        if held if isinstance(held, bool) else await held:
            return
        assert asyncio.get_running_loop().time() < deadline, f"not within {WAIT_SECONDS} s: {what}"
        await asyncio.sleep(0.002)


class StoreContract:
    """The contract. `open_store` opens a new session with the same tree every time it is called in one test."""

    @pytest.fixture
    def open_store(self) -> Callable[[], MetadataStore]:
        raise NotImplementedError

    async def delivered(self) -> None:
        """Return when listeners have been called for all writes. A store that calls late overrides this."""

    async def expire(self, store: MetadataStore) -> None:
        """Make the tree give up the session of `store`, as if its process had hung."""
        raise NotImplementedError

    def run_several(
        self, open_store: Callable[[], MetadataStore], steps: Callable[[list[MetadataStore]], Awaitable[None]]
    ) -> None:
        """Run `steps` with SEVERAL sessions."""

        async def with_stores() -> None:
            stores = [open_store() for _ in range(SEVERAL)]
            try:
                await steps(stores)
            finally:
                for store in stores:
                    await store.close()

        asyncio.run(with_stores())

    def run(self, open_store: Callable[[], MetadataStore], steps: Steps) -> None:
        async def with_store() -> None:
            store = open_store()
            try:
                await steps(store)
            finally:
                await store.close()

        asyncio.run(with_store())

    def test_a_new_tree_is_empty(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            assert await store.get("/a") is None
            assert await store.children("/") == []

        self.run(open_store, steps)

    def test_a_created_node_has_its_data_and_version_0(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            assert await store.create("/a", b"x") == "/a"
            node = await store.get("/a")
            assert node is not None
            assert (node.data, node.version) == (b"x", 0)

        self.run(open_store, steps)

    def test_a_later_node_has_a_larger_creation_number(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/a")
            await store.put("/a", b"1")
            await store.create("/b")
            first, second = await store.get_many(["/a", "/b"])
            assert first is not None
            assert second is not None
            assert first.created < second.created

        self.run(open_store, steps)

    def test_a_node_needs_its_parent(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            with pytest.raises(NoNode):
                await store.create("/a/b")

        self.run(open_store, steps)

    def test_a_path_is_taken_once(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/a", b"1")
            with pytest.raises(NodeExists):
                await store.create("/a", b"2")

        self.run(open_store, steps)

    def test_put_counts_versions_and_refuses_a_stale_one(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/a")
            assert await store.put("/a", b"1", 0) == 1
            assert await store.put("/a", b"2") == 2
            with pytest.raises(BadVersion):
                await store.put("/a", b"3", 1)
            with pytest.raises(NoNode):
                await store.put("/b", b"")
            node = await store.get("/a")
            assert node is not None
            assert node.data == b"2"

        self.run(open_store, steps)

    def test_delete_wants_the_version_and_no_children(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/a")
            await store.create("/a/b")
            with pytest.raises(NotEmpty):
                await store.delete("/a")
            with pytest.raises(BadVersion):
                await store.delete("/a/b", 3)
            await store.delete("/a/b", 0)
            await store.delete("/a")
            with pytest.raises(NoNode):
                await store.delete("/a")

        self.run(open_store, steps)

    def test_children_are_names_of_one_level(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            for path in ("/a", "/a/c", "/a/b", "/a/b/d", "/ab"):
                await store.create(path)
            assert await store.children("/a") == ["b", "c"]
            assert await store.children("/") == ["a", "ab"]
            with pytest.raises(NoNode):
                await store.children("/nothing")

        self.run(open_store, steps)

    def test_get_many_keeps_the_order_and_says_what_is_missing(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/b", b"b")
            nodes = await store.get_many(["/a", "/b", "/c"])
            assert [node and node.data for node in nodes] == [None, b"b", None]

        self.run(open_store, steps)

    def test_sequence_nodes_never_share_a_number(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/q")
            first = await store.create("/q/n-", sequence=True)
            await store.delete(first)
            second = await store.create("/q/n-", sequence=True)
            assert first == "/q/n-0000000000"
            assert second > first
            assert len(second) == len(first)

        self.run(open_store, steps)

    def test_multi_does_everything_in_order(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            operations: list[Operation] = [
                Create("/a"),
                Create("/a/b", b"1"),
                Put("/a/b", b"2"),
                Check("/a/b", 1),
                Delete("/a/b", 1),
            ]
            assert await store.multi(operations) == ["/a", "/a/b", 1, None, None]
            assert await store.children("/a") == []

        self.run(open_store, steps)

    @pytest.mark.parametrize(
        ("last", "error"),
        [
            (Create("/x"), NodeExists),
            (Create("/no/child"), NoNode),
            (Put("/x", b"", 5), BadVersion),
            (Delete("/no"), NoNode),
            (Delete("/x"), NotEmpty),
            (Check("/x", 5), BadVersion),
            (Check("/no"), NoNode),
        ],
    )
    def test_multi_does_nothing_when_one_operation_fails(
        self, open_store: Callable[[], MetadataStore], last: Operation, error: type[Exception]
    ) -> None:
        async def steps(store: MetadataStore) -> None:
            seen: list[str] = []
            await store.create("/x", b"old")
            await store.create("/x/child")
            store.watch("/", seen.append)
            with pytest.raises(error):
                await store.multi([Create("/a"), Put("/x", b"new"), last])
            node = await store.get("/x")
            assert node is not None
            assert (node.data, node.version) == (b"old", 0)
            assert await store.get("/a") is None
            await self.delivered()
            assert seen == []

        self.run(open_store, steps)

    def test_ephemeral_nodes_end_with_their_session(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps() -> None:
            store = open_store()
            await store.create("/lasting")
            await store.create("/fleeting", ephemeral=True)
            assert await store.get("/fleeting") is not None
            await store.close()
            store = open_store()
            assert await store.get("/fleeting") is None
            assert await store.get("/lasting") is not None
            await store.close()

        asyncio.run(steps())

    def test_ephemeral_nodes_have_no_children(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/fleeting", ephemeral=True)
            with pytest.raises(NoChildrenForEphemerals):
                await store.create("/fleeting/child")

        self.run(open_store, steps)

    def test_a_closed_session_is_lost(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps() -> None:
            store = open_store()
            await store.close()
            await store.close()
            with pytest.raises(SessionLost):
                await store.get("/a")
            with pytest.raises(SessionLost):
                await store.create("/a")

        asyncio.run(steps())

    def test_listeners_hear_of_every_change_below_their_path(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            seen: list[str] = []
            await store.create("/a")
            end = store.watch("/a", seen.append)
            await store.create("/a/b")
            await self.delivered()
            await store.put("/a/b", b"1")
            await self.delivered()
            await store.create("/ab")
            await store.delete("/a/b")
            await self.delivered()
            await store.put("/a", b"1")
            await self.delivered()
            assert seen == ["/a/b", "/a/b", "/a/b", "/a"]
            end()
            end()
            await store.put("/a", b"2")
            await self.delivered()
            assert len(seen) == 4

        self.run(open_store, steps)

    def test_ensure_paths_makes_what_is_missing(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await store.create("/a", b"kept")
            await ensure_paths(store, ["/a/b/c", "/a/b"])
            await ensure_paths(store, ["/a/b/c", "/a/b"])
            node = await store.get("/a")
            assert node is not None
            assert node.data == b"kept"
            assert await store.children("/a/b") == ["c"]

        self.run(open_store, steps)

    def test_a_subtree_is_listed_in_an_order_that_can_be_deleted(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(store: MetadataStore) -> None:
            await ensure_paths(store, ["/a/b/c", "/a/d"])
            paths = await subtree(store, "/a")
            assert paths[-1] == "/a"
            await store.multi([Delete(path) for path in paths])
            assert await store.children("/") == []

        self.run(open_store, steps)

    def test_a_session_is_connected_and_after_close_it_is_lost(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps() -> None:
            store = open_store()
            await store.get("/")
            states = [store.session_state]
            await store.close()
            states.append(store.session_state)
            assert states == [SessionState.CONNECTED, SessionState.LOST]
            with pytest.raises(SessionLost):
                await store.reconnect()

        asyncio.run(steps())

    def test_no_two_sessions_share_an_id(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            for store in stores:
                await store.get("/")
            assert len({store.session_id for store in stores}) == SEVERAL

        self.run_several(open_store, steps)

    def test_another_session_hears_of_changes_in_their_order(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            writer, reader, _other = stores
            seen: list[str] = []
            await writer.create("/a")
            await eventually(lambda: exists(reader, "/a"), "the first node")
            reader.watch("/a", seen.append)
            await reader.get("/a")  # what comes after it is told
            paths = [f"/a/{number:02}" for number in range(20)]
            for path in paths:
                await writer.create(path)
            await eventually(lambda: paths[-1] in seen, "the last node's listener")
            created = [path for path in dict.fromkeys(seen) if path in paths]
            assert created == paths

        self.run_several(open_store, steps)

    def test_what_a_listener_is_told_can_be_read(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            writer, reader, _other = stores
            told = asyncio.Event()
            reader.watch("/a", lambda _path: told.set())
            await reader.get("/a")
            await writer.create("/a", b"new")
            await asyncio.wait_for(told.wait(), WAIT_SECONDS)
            node = await reader.get("/a")
            assert node is not None
            assert node.data == b"new"

        self.run_several(open_store, steps)

    def test_others_are_told_of_the_end_of_a_session(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            leaving, reader, _other = stores
            seen: list[str] = []
            await leaving.create("/brokers")
            await leaving.create("/brokers/1", ephemeral=True)
            await eventually(lambda: exists(reader, "/brokers/1"), "the ephemeral node")
            reader.watch("/brokers", seen.append)
            await reader.get("/brokers")  # what comes after it is told
            await leaving.close()
            await eventually(lambda: "/brokers/1" in seen, "the listener")
            assert await reader.get("/brokers/1") is None

        self.run_several(open_store, steps)

    def test_multi_is_all_or_nothing_among_sessions(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            await ensure_paths(stores[0], ["/claims", "/taken"])

            async def claim(number: int, store: MetadataStore) -> bool:
                try:
                    await store.multi([Create(f"/claims/{number}"), Create("/taken/it"), Put("/claims", b"")])
                except NodeExists:
                    return False
                return True

            outcomes = await asyncio.gather(*(claim(number, store) for number, store in enumerate(stores)))
            assert sorted(outcomes) == [False] * (SEVERAL - 1) + [True]
            assert await stores[outcomes.index(True)].children("/claims") == [str(outcomes.index(True))]

        self.run_several(open_store, steps)

    def test_sequence_numbers_are_unique_among_sessions(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            await stores[0].create("/q")
            await eventually(lambda: exists(stores[-1], "/q"), "the parent")
            made = await asyncio.gather(*(store.create("/q/n-", sequence=True) for _ in range(10) for store in stores))
            assert len(set(made)) == 10 * SEVERAL

        self.run_several(open_store, steps)

    def test_of_several_that_expect_the_same_version_one_wins(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            await stores[0].create("/a")
            for version in range(10):
                puts = (store.put("/a", str(version).encode(), version) for store in stores)
                outcomes = await asyncio.gather(*puts, return_exceptions=True)
                assert [outcome for outcome in outcomes if not isinstance(outcome, BadVersion)] == [version + 1]

        self.run_several(open_store, steps)

    def test_a_counter_of_several_sessions_loses_nothing(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            await stores[0].create("/count", b"0")
            await asyncio.gather(*(count(store, 10) for store in stores))
            await eventually(lambda: counted(stores[0]), "what the others have counted")

        async def counted(store: MetadataStore) -> bool:
            node = await store.get("/count")
            assert node is not None
            return (int(node.data), node.version) == (10 * SEVERAL, 10 * SEVERAL)

        async def count(store: MetadataStore, times: int) -> None:
            await eventually(lambda: exists(store, "/count"), "the counter")
            while times:
                node = await store.get("/count")
                assert node is not None
                try:
                    await store.put("/count", str(int(node.data) + 1).encode(), node.version)
                except BadVersion:
                    continue
                times -= 1

        self.run_several(open_store, steps)

    def test_a_session_that_is_given_up_loses_its_nodes_and_finds_out(
        self, open_store: Callable[[], MetadataStore]
    ) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            lost, reader, _other = stores
            states: list[SessionState] = []
            seen: list[str] = []
            await lost.create("/mine", ephemeral=True)
            await eventually(lambda: exists(reader, "/mine"), "the ephemeral node")
            lost.on_session(states.append)
            reader.watch("/mine", seen.append)
            await reader.get("/mine")  # what comes after it is told
            await self.expire(lost)
            await eventually(lambda: SessionState.LOST in states, "being told that the session is lost")
            await eventually(lambda: "/mine" in seen, "the other session's listener")
            assert await reader.get("/mine") is None
            assert lost.session_state is SessionState.LOST
            with pytest.raises(SessionLost):
                await lost.get("/")
            with pytest.raises(SessionLost):
                await lost.create("/b")
            assert await reader.get("/b") is None
            assert reader.session_state is SessionState.CONNECTED

        self.run_several(open_store, steps)

    def test_after_a_loss_a_new_session_begins_and_watches_go_on(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            lost, other, _third = stores
            states: list[SessionState] = []
            seen: list[str] = []
            await ensure_paths(lost, ["/a"])
            before = await self.ephemeral(lost, "/mine")
            old_id = lost.session_id
            lost.on_session(states.append)
            await self.expire(lost)
            await eventually(lambda: SessionState.LOST in states, "being told that the session is lost")
            lost.watch("/a", seen.append)
            await other.create("/a/missed")
            states.clear()
            await lost.reconnect()
            await eventually(lambda: states == [SessionState.CONNECTED], "being told of the new session")
            await eventually(lambda: "/a" in seen, "the watch's own path")
            assert lost.session_id != old_id
            assert await self.ephemeral(lost, "/mine") > before
            await lost.reconnect()  # nothing to do
            await other.create("/a/heard")
            await eventually(lambda: "/a/heard" in seen, "the watch in the new session")

        self.run_several(open_store, steps)

    async def ephemeral(self, store: MetadataStore, path: str) -> int:
        """Make the node; returns its creation number."""
        await store.create(path, ephemeral=True)
        node = await store.get(path)
        assert node is not None
        return node.created

    def test_a_listener_that_has_ended_hears_nothing_of_the_session(
        self, open_store: Callable[[], MetadataStore]
    ) -> None:
        async def steps(store: MetadataStore) -> None:
            kept: list[SessionState] = []
            ended: list[SessionState] = []
            store.on_session(kept.append)
            end = store.on_session(ended.append)
            end()
            end()
            await store.get("/")
            await self.expire(store)
            await eventually(lambda: SessionState.LOST in kept, "the listener that is left")
            assert ended == []

        self.run(open_store, steps)

    def test_two_thousand_changes_fit_into_one_multi(self, open_store: Callable[[], MetadataStore]) -> None:
        async def steps(stores: list[MetadataStore]) -> None:
            writer, reader, _other = stores
            seen: set[str] = set()
            await writer.create("/p")
            await eventually(lambda: exists(reader, "/p"), "the parent")
            reader.watch("/p", seen.add)
            await reader.get("/p")  # what comes after it is told
            paths = [f"/p/{number}" for number in range(2000)]
            await writer.multi([Create(path, b"state") for path in paths])
            await writer.multi([Put(path, b"new state", 0) for path in paths])
            await eventually(lambda: seen.issuperset(paths) or "/p" in seen, "all of them")
            await eventually(lambda: hold(reader, paths, b"new state"), "the last state of all, as another session")

        self.run_several(open_store, steps)


async def hold(store: MetadataStore, paths: list[str], data: bytes) -> bool:
    return {node and node.data for node in await store.get_many(paths)} == {data}


async def exists(store: MetadataStore, path: str) -> bool:
    return await store.get(path) is not None
