"""The SQLite store keeps the contract, and what it was told survives."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.store import Create, MetadataStore, NodeExists
from moldau.core.invariants import InvariantError
from tests.cluster.store_contract import StoreContract


class TestEmbeddedStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], MetadataStore]:
        return lambda: EmbeddedStore(str(tmp_path / "metadata.db"), durable=False)


def test_the_store_lives_in_memory_too() -> None:
    async def steps() -> None:
        store = EmbeddedStore(":memory:")
        await store.create("/a")
        assert await store.children("/") == ["a"]
        await store.close()

    asyncio.run(steps())


def test_what_was_written_is_there_after_a_crash_and_ephemeral_nodes_are_not(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")

    async def steps() -> None:
        crashed = EmbeddedStore(path)
        await crashed.create("/a", b"1")
        await crashed.create("/broker", ephemeral=True)
        store = EmbeddedStore(path)  # the first one was never closed
        assert await store.children("/") == ["a"]
        await store.close()

    asyncio.run(steps())


def test_durable_means_that_a_commit_is_synced(tmp_path: Path) -> None:
    def synchronous(store: EmbeddedStore) -> int:
        (level,) = store._database.execute("PRAGMA synchronous").fetchone()
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
