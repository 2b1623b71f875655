"""`moldau.aio.Consumer`: the group's consumer for asyncio.

    async with Consumer("visits", group_id="clerks") as consumer:
        async for record in consumer:
            await handle(record)

The law is that of `moldau.Consumer`: at least once. Messages come from the thread in batches; each counts as
handled when the next one is asked for.
"""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from confluent_kafka import Message

from moldau.client import consumer as threads
from moldau.client.consumer import BATCH_RECORDS, COMMIT_INTERVAL_S, OnPartitions
from moldau.client.handling import AsyncHandler, DeadLetters, Handled, Retries
from moldau.client.one_thread import OneThread
from moldau.client.records import Record
from moldau.client.seeks import Partition
from moldau.client.serdes import BYTES, Serde
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    K = DefaultTypeVar("K", default=bytes)
    V = DefaultTypeVar("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")


class Consumer(Generic[K, V]):
    """Reads topics as a member of a group, from one event loop. The arguments are those of `moldau.Consumer`."""

    def __init__(
        self,
        *topics: str,
        group_id: str,
        bootstrap: Bootstrap | None = None,
        key: Serde[K] = BYTES,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = BYTES,  # type: ignore[assignment]  # the same
        auto_offset_reset: Literal["earliest", "latest", "error"] = "earliest",
        auto_commit: bool = True,
        commit_interval_s: float = COMMIT_INTERVAL_S,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.threaded: threads.Consumer[K, V] = threads.Consumer(
            *topics,
            group_id=group_id,
            bootstrap=bootstrap,
            key=key,
            value=value,
            auto_offset_reset=auto_offset_reset,
            auto_commit=auto_commit,
            commit_interval_s=commit_interval_s,
            on_assign=on_assign,
            on_revoke=on_revoke,
            properties=properties,
        )
        self.thread = OneThread("moldau-aio-consumer")
        self._may_block = key.may_block or value.may_block
        self._waiting: deque[Message] = deque()
        """Messages that the thread has brought and nobody has got yet."""
        self._is_fetching = False

    # --- reading ---

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self.records()

    async def records(self, limit: int | None = None, idle_s: float | None = None) -> AsyncIterator[Record[K, V]]:
        """Records as they come; see `moldau.Consumer.records`."""
        left = limit
        while left is None or left > 0:
            message = await self._next(idle_s)
            if message is None:
                return
            yield await self._decoded(message)
            self.hand_over()
            left = None if left is None else left - 1

    async def poll(self, timeout_s: float = 1.0) -> Record[K, V] | None:
        """The next record; None if none comes in time."""
        message = await self._next(timeout_s)
        return None if message is None else await self._decoded(message)

    async def _next(self, timeout_s: float | None) -> Message | None:
        self.hand_over()
        if not self._waiting:
            await self.thread.run(lambda: self._fetch(timeout_s))
        if self.threaded.is_stopped or not self._waiting:
            return None
        message = self._waiting.popleft()
        self.threaded.hand_out(message)
        return message

    def _fetch(self, timeout_s: float | None) -> None:
        """Bring messages, in the thread: also for a caller who was cancelled meanwhile, and asks again. What came for
        one who was cancelled is enough for the next."""
        if self._waiting:
            return
        self._is_fetching = True
        try:
            self.threaded.mark_handled()
            self._waiting.extend(self.threaded.fetch_ahead(BATCH_RECORDS, timeout_s))
        finally:
            self._is_fetching = False

    async def _decoded(self, message: Message) -> Record[K, V]:
        if self._may_block:
            return await self.thread.run(lambda: self.threaded.decoded(message))
        return self.threaded.decoded(message)

    # --- what was handled, and positions ---

    def hand_over(self) -> None:
        """Count the record at hand as handled. While the thread fetches for a caller who was cancelled, it waits: one
        thread at a time may use the client."""
        if not self._is_fetching:
            self.threaded.mark_handled()

    def forget(self) -> None:
        """Drop messages that nobody has got yet: the position is another one now."""
        self._waiting.clear()

    async def commit(self) -> None:
        """Commit all records that were handed out, and wait for it."""
        await self.thread.run(self.threaded.commit)

    async def committed(self) -> dict[Partition, int]:
        """Committed offsets of this member's partitions."""
        return await self.thread.run(self.threaded.committed)

    async def wait_for_assignment(self, timeout_s: float = REQUEST_TIMEOUT_S) -> list[Partition]:
        """Partitions of this member, as soon as it has some. Raises TimeoutError."""
        return await self.thread.run(lambda: self.threaded.wait_for_assignment(timeout_s))

    async def seek(self, topic: str, partition: int, offset: int | Literal["earliest", "latest"]) -> None:
        """Go to an offset of a partition that this member has."""
        mine = (topic, partition)
        await self._moved(lambda: self.threaded.seek(topic, partition, offset))
        self._waiting = deque(each for each in self._waiting if (each.topic(), each.partition()) != mine)

    async def seek_to_beginning(self) -> None:
        """Go to the oldest record of every partition that this member has."""
        await self._moved(self.threaded.seek_to_beginning)
        self.forget()

    async def seek_to_time(self, when: datetime | float) -> None:
        """Go to the first record of this time or later, in every partition of this member."""
        await self._moved(lambda: self.threaded.seek_to_time(when))
        self.forget()

    async def _moved(self, move: Callable[[], T]) -> T:
        return await self.thread.run(move)

    # --- the loop, and the end ---

    async def run(
        self,
        handler: AsyncHandler[K, V],
        *,
        retries: int = 3,
        backoff_s: float = 0.1,
        dead_letters: str | None = None,
        permanent: tuple[type[Exception], ...] = (),
        on_signals: bool = True,
        limit: int | None = None,
        idle_s: float | None = None,
    ) -> Handled:
        """Await `handler` with each record, until `stop`, SIGTERM or Ctrl-C; see `moldau.Consumer.run`."""
        inner = self.threaded
        letters = dead_letters and DeadLetters(dead_letters, inner.group_id, inner.bootstrap, inner.properties)
        work = _Work(self, handler, Retries(retries, backoff_s, permanent), letters or None)
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT) if on_signals else ()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread may listen to signals
            for number in numbers:
                loop.add_signal_handler(number, self.stop)
        try:
            await work.loop(limit, idle_s)
        finally:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                for number in numbers:
                    loop.remove_signal_handler(number)
            if letters:
                await self.thread.run(letters.close)
        return work.counts

    async def take(self, idle_s: float | None) -> Message | None:
        """The next message, not decoded; None after `idle_s` or `stop`."""
        return await self._next(idle_s)

    async def give_back(self, message: Message) -> None:
        """Count a message that was handed out as not handled."""
        await self.thread.run(lambda: self.threaded.give_back(message))
        mine = (message.topic(), message.partition())
        self._waiting = deque(each for each in self._waiting if (each.topic(), each.partition()) != mine)

    async def record_of(self, message: Message) -> Record[K, V]:
        return await self._decoded(message)

    def stop(self) -> None:
        """End iteration after the record at hand."""
        self.threaded.stop()

    async def close(self) -> None:
        """Commit what was handled, that at hand too, and leave the group."""
        await self._close(is_handled=True)

    async def _close(self, is_handled: bool) -> None:
        self.threaded.stop()  # a call that still waits in the thread ends
        try:
            await self.thread.run(lambda: self.threaded.__exit__(None if is_handled else Exception))
        finally:
            self.thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._close(is_handled=kind is None)


class _Work(Generic[K, V]):
    """The loop of one run."""

    def __init__(
        self, consumer: Consumer[K, V], handler: AsyncHandler[K, V], retries: Retries, letters: DeadLetters | None
    ) -> None:
        self.counts = Handled()
        self._consumer = consumer
        self._handler = handler
        self._retries = retries
        self._letters = letters

    async def loop(self, limit: int | None, idle_s: float | None) -> None:
        left = limit
        while left is None or left > 0:
            message = await self._consumer.take(idle_s)
            if message is None:
                return
            if not await self._handle(message):
                await self._consumer.give_back(message)
                return
            self._consumer.hand_over()
            left = None if left is None else left - 1

    async def _handle(self, message: Message) -> bool:
        """Whether the record is done with; it is not if a stop came between two tries."""
        tries = 0
        while True:
            tries += 1
            try:
                await self._handler(await self._consumer.record_of(message))
                self.counts.handled += 1
                return True
            except Exception as error:  # a handler may raise what it likes
                pause_s = self._retries.pause_s(error, tries)
                if pause_s is None:
                    await self._bury(message, error)
                    return True
                self.counts.retried += 1
            await asyncio.sleep(pause_s)
            if self._consumer.threaded.is_stopped:
                return False

    async def _bury(self, message: Message, error: Exception) -> None:
        if self._letters is None:
            await self._consumer.give_back(message)
            raise error
        letters = self._letters
        await self._consumer.thread.run(lambda: letters.write(message, error))
        self.counts.dead += 1
