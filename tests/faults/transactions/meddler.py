"""A network between clients and brokers that repeats requests, and lets them arrive late.

Three things happen to Produce and to the requests of transactions:
- in place: the request arrives twice, one behind the other, and the client gets the second answer;
- late: it arrives, and once more up to seconds later, over another connection;
- held back: the client's connection ends, and the request arrives later, when the client has asked again or gone on.

What a broker can bear depends on the transaction version (KIP-890). In version 2 each transaction has its own epoch, so
nothing late can touch the next one. In version 1 these cannot be told from requests of the next transaction, and are
never late here: EndTxn, which would end it; TxnOffsetCommit, which would put old offsets into it; AddOffsetsToTxn,
which goes before it. A late Produce is known by its sequence. A late AddPartitions adds nothing but an empty partition,
though it may open a transaction that nobody ends before its timeout. InitProducerId is never repeated, in either
version: who asks without an epoch is a new producer, and fences the one before.
Clients say their version in the first letters of their client id: `v1-` or `v2-`.
"""

import asyncio
import random
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from moldau.testing.ports import HOST

T = TypeVar("T")

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT = 0, 24, 25, 26, 28
_V1, _V2 = b"v1-", b"v2-"
IN_PLACE = {_V1: {PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT}, _V2: {PRODUCE, END, OFFSET_COMMIT}}
LATE = {_V1: {PRODUCE, ADD_PARTITIONS}, _V2: {PRODUCE, END, OFFSET_COMMIT}}
HELD_BACK = {_V1: {PRODUCE}, _V2: {PRODUCE, END, OFFSET_COMMIT}}
CHANCES = {"in place": 0.06, "late": 0.06, "held back": 0.02}
LATE_S_MAX = 3.0
ANSWER_S = 5.0
_HEAD = struct.Struct(">ihhih")  # size, api key, version, correlation id, length of the client id


class Meddler:
    """Proxies in front of brokers, in a thread of their own; `is_active` may be set from any thread."""

    def __init__(self, seed: int) -> None:
        self.is_active = False
        self.done: Counter[str] = Counter()
        """What was done how often, by name and API key."""
        self._chance = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="meddler", daemon=True)
        self._thread.start()

    def open(self, target_port: int) -> int:
        """The port of a new proxy in front of a broker."""
        return self._run(self._open(target_port))

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, target_port: int) -> int:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._start(self._serve(reader, writer, target_port))

        server = await asyncio.start_server(accepted, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            far_reader, far_writer = await asyncio.open_connection(HOST, target_port)
            unwanted: Counter[int] = Counter()
            ways = [
                asyncio.ensure_future(self._requests(reader, far_writer, unwanted, target_port)),
                asyncio.ensure_future(_answers(far_reader, writer, unwanted)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                far_writer.close()
        writer.close()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        unwanted: Counter[int],
        target_port: int,
    ) -> None:
        while True:
            frame = await _frame(reader)
            _, key, _, correlation_id, length = _HEAD.unpack_from(frame)
            client = frame[_HEAD.size : _HEAD.size + max(0, length)][:3]
            what = self._choice(key, client)
            if what is not None:
                self.done[f"{what} {key} {client.decode()}"] += 1
            if what == "held back":
                self._start(self._send_late(frame, target_port))
                return
            if what == "late":
                self._start(self._send_late(frame, target_port))
            elif what == "in place":
                unwanted[correlation_id] += 1
                writer.write(frame)
            writer.write(frame)
            await writer.drain()

    def _choice(self, key: int, client: bytes) -> str | None:
        if not self.is_active:
            return None
        chosen = self._chance.random()
        for what, table in (("in place", IN_PLACE), ("late", LATE), ("held back", HELD_BACK)):
            chosen -= CHANCES[what]
            if chosen < 0:
                return what if key in table.get(client, ()) else None
        return None

    async def _send_late(self, frame: bytes, target_port: int) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, LATE_S_MAX) ** 2 / LATE_S_MAX)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, target_port)
            try:
                writer.write(frame)
                await asyncio.wait_for(_frame(reader), ANSWER_S)
            finally:
                writer.close()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unwanted: Counter[int]) -> None:
    while True:
        frame = await _frame(reader)
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        if unwanted[correlation_id]:
            unwanted[correlation_id] -= 1
            continue
        writer.write(frame)
        await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(struct.unpack(">i", head)[0])
