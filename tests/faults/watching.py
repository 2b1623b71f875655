"""Watcher of the states of partitions in the store: one more session, which keeps every state that it sees."""

import asyncio
import json
import re
import threading
from collections.abc import Callable

from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.store import MetadataStore, SessionState, StoreError, subtree
from moldau.cluster.znodes import TOPICS
from moldau.cluster.zookeeper.store import ZooKeeperStore
from moldau.core.ids import TopicPartition
from moldau.testing.invariants import StateSeen

STATE = re.compile(rf"{TOPICS}/(?P<topic>[^/]+)/partitions/(?P<index>\d+)/state")
RETRY_S = 0.1


class StateWatcher:
    """Watcher in a thread of its own, between `start` and `stop`."""

    def __init__(self, make_store: Callable[[], MetadataStore]) -> None:
        self.seen: list[StateSeen] = []
        self._make_store = make_store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="watcher", daemon=True)
        self._changed: set[str] = set()
        self._news: asyncio.Event
        self._last: dict[str, StateSeen] = {}
        self._task: asyncio.Task[None]
        self._store: MetadataStore

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._begin(), self._loop).result()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def now(self) -> dict[TopicPartition, StateSeen]:
        """The newest state of each partition."""
        return {state.partition: state for state in list(self._last.values())}

    async def _begin(self) -> None:
        self._news = asyncio.Event()
        self._store = self._make_store()
        self._store.watch(TOPICS, self._note)
        self._note(TOPICS)
        self._task = asyncio.ensure_future(self._read_on())

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._store.close()

    def _note(self, path: str) -> None:
        self._changed.add(path)
        self._news.set()

    async def _read_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            paths, self._changed = self._changed, set()
            try:
                await self._read(paths)
            except StoreError:
                self._changed |= paths | {TOPICS}
                await asyncio.sleep(RETRY_S)
                self._news.set()
                if self._store.session_state is SessionState.LOST:
                    await self._reconnect()

    async def _reconnect(self) -> None:
        try:
            await self._store.reconnect()
        except StoreError:
            return

    async def _read(self, paths: set[str]) -> None:
        if TOPICS in paths:
            paths |= set(await subtree(self._store, TOPICS))
        wanted = sorted(path for path in paths if STATE.fullmatch(path))
        for path, node in zip(wanted, await self._store.get_many(wanted), strict=True):
            found = STATE.fullmatch(path)
            if node is None or found is None:
                continue
            state = json.loads(node.data)
            partition = TopicPartition(found["topic"], int(found["index"]))
            seen = StateSeen(partition, state["leader"], state["leader_epoch"], tuple(state["isr"]))
            if self._last.get(path) != seen:
                self._last[path] = seen
                self.seen.append(seen)


def watcher_of(store_path: str, zookeeper: str | None, session_timeout_ms: int) -> StateWatcher:
    """A watcher of the embedded store's file, or of the ensemble."""

    def make() -> MetadataStore:
        if zookeeper is not None:
            return ZooKeeperStore(zookeeper, session_timeout_ms)
        return EmbeddedStore(store_path, session_timeout_ms=session_timeout_ms)

    return StateWatcher(make)
