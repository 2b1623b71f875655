"""A process with a session of its own, which gets its work on its standard input: one JSON list a line, one JSON answer
a line. `python -m tests.cluster.embedded.worker PATH SESSION_TIMEOUT_MS [durable]`."""

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

import uvloop

from moldau.cluster.embedded.store import EmbeddedStore
from moldau.cluster.embedded.tree import _Transaction
from moldau.cluster.store import BadVersion, StoreError, ensure_paths

WRITES = "BEGIN IMMEDIATE"


class Worker:
    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store
        self.states: list[str] = []
        store.on_session(lambda state: self.states.append(state.value))

    async def do(self, name: str, *arguments: Any) -> Any:
        try:
            return await getattr(self, name)(*arguments)
        except StoreError as error:
            return type(error).__name__

    async def session(self) -> list[Any]:
        return [self.store.session_id, self.store.session_state.value, self.states]

    async def ephemeral(self, path: str) -> str:
        return await self.store.create(path, ephemeral=True)

    async def get(self, path: str) -> str | None:
        node = await self.store.get(path)
        return node and node.data.decode()

    async def put(self, path: str, data: str) -> int:
        return await self.store.put(path, data.encode())

    async def ensure(self, path: str) -> None:
        await ensure_paths(self.store, [path])

    async def count(self, path: str, times: int) -> int:
        """Add one so many times; returns the number of times that somebody else was quicker."""
        conflicts = 0
        while times:
            node = await self.store.get(path)
            assert node is not None
            try:
                await self.store.put(path, str(int(node.data or b"0") + 1).encode(), node.version)
                times -= 1
            except BadVersion:
                conflicts += 1
        return conflicts

    async def reconnect(self) -> int:
        await self.store.reconnect()
        return self.store.session_id

    async def cpu(self) -> float:
        return time.process_time()

    async def stop_inside_a_transaction(self) -> None:
        with self.store._tree.transaction():
            self.store._tree.apply([], 0)
            os.kill(os.getpid(), signal.SIGSTOP)

    async def hang_inside_a_transaction(self, seconds: float) -> None:
        """Hang inside a transaction, neither stopped nor dead: the loop just does not turn."""
        with self.store._tree.transaction():
            self.store._tree.apply([], 0)
            time.sleep(seconds)

    async def hang(self, seconds: float) -> None:
        time.sleep(seconds)

    async def slow_disk(self, seconds: float) -> None:
        slow_disk(seconds)

    async def close(self) -> None:
        await self.store.close()


def slow_disk(seconds: float) -> None:
    """Let every commit of this process take so much longer from now on, with the write lock held."""
    commit = _Transaction._commit

    def slow(transaction: _Transaction) -> None:
        if transaction._begin == WRITES:
            time.sleep(seconds)
        commit(transaction)

    _Transaction._commit = slow  # type: ignore[method-assign, assignment]


async def main(path: str, session_timeout_ms: int, durable: bool) -> None:
    loop = asyncio.get_running_loop()
    worker = Worker(EmbeddedStore(path, durable=durable, session_timeout_ms=session_timeout_ms))
    print(json.dumps("ready"), flush=True)  # noqa: T201 - this is the answer
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        print(json.dumps(await worker.do(*json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), "durable" in sys.argv[3:]))
