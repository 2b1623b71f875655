"""What every metadata store must do. A store's test module inherits `StoreContract` and says how to open one."""

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
    ensure_paths,
    subtree,
)

Steps = Callable[[MetadataStore], Awaitable[None]]


class StoreContract:
    """`open_store` opens a new session with the same tree every time it is called in one test."""

    @pytest.fixture
    def open_store(self) -> Callable[[], MetadataStore]:
        raise NotImplementedError

    async def delivered(self) -> None:
        """Return when listeners have been called for all that was written. A store that calls late overrides this."""

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
