"""`moldau.aio.SimpleConsumer`: one partition from an exact offset, for asyncio.

async with SimpleConsumer("visits", 0, 42) as log:
    async for record in log.to_end():
        ...
"""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, Self

from moldau.client import simple_consumer as threads
from moldau.client.consumer import BATCH_RECORDS, POLL_S
from moldau.client.errors import ClientError
from moldau.client.one_thread import OneThread
from moldau.client.records import Record
from moldau.client.serdes import BYTES, Serde
from moldau.client.settings import REQUEST_TIMEOUT_S, Bootstrap
from moldau.client.simple_consumer import Ends, Start

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class SimpleConsumer(Generic[K, V]):
    """Reads one partition from an exact place, inside of `async with`. The arguments are those of
    `moldau.SimpleConsumer`."""

    def __init__(
        self,
        topic: str,
        partition: int = 0,
        start: Start = "earliest",
        *,
        bootstrap: Bootstrap | None = None,
        key: Serde[K] = BYTES,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = BYTES,  # type: ignore[assignment]  # the same
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._make = lambda: threads.SimpleConsumer(
            topic,
            partition,
            start,
            bootstrap=bootstrap,
            key=key,
            value=value,
            isolation=isolation,
            properties=properties,
        )
        self._thread = OneThread("moldau-aio-simple-consumer")
        self._opened: threads.SimpleConsumer[K, V] | None = None

    @property
    def _consumer(self) -> threads.SimpleConsumer[K, V]:
        if self._opened is None:
            raise ClientError("open it first: async with SimpleConsumer(...) as log")
        return self._opened

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self.records()

    async def records(self, limit: int | None = None, idle_s: float | None = None) -> AsyncIterator[Record[K, V]]:
        """Records from the position on, as they come; see `moldau.SimpleConsumer.records`."""
        left = limit
        while left is None or left > 0:
            found = await self.fetch(1, POLL_S if idle_s is None else idle_s)
            if not found and idle_s is not None:
                return
            for record in found:
                yield record
            left = None if left is None else left - len(found)

    async def to_end(self) -> AsyncIterator[Record[K, V]]:
        """Records from the position up to the end that the partition has now."""
        end = await self._thread.run(self._consumer.end_ahead)
        while self.position < end:
            for record in await self.fetch(BATCH_RECORDS, REQUEST_TIMEOUT_S, end):
                yield record

    async def fetch(
        self, limit: int = BATCH_RECORDS, timeout_s: float = 1.0, end: int | None = None
    ) -> list[Record[K, V]]:
        """Records that are there, at least one if one comes in time; none of the offset `end` or later."""
        return await self._thread.run(lambda: self._consumer.fetch(limit, timeout_s, end))

    @property
    def position(self) -> int:
        """The offset that is read next."""
        return self._consumer.position

    async def ends(self) -> Ends:
        """The offsets between which records are."""
        return await self._thread.run(self._consumer.ends)

    async def seek(self, start: Start) -> None:
        """Go to an offset, a time, or an end of the log."""
        await self._thread.run(lambda: self._consumer.seek(start))

    async def seek_to_time(self, when: datetime | float) -> None:
        """Go to the first record of this time or later."""
        await self._thread.run(lambda: self._consumer.seek_to_time(when))

    async def rewind(self, records: int | None = None) -> None:
        """Go back by so many offsets, or to the oldest record."""
        await self._thread.run(lambda: self._consumer.rewind(records))

    async def close(self) -> None:
        try:
            if self._opened is not None:
                await self._thread.run(self._opened.close)
        finally:
            self._thread.close()

    async def __aenter__(self) -> Self:
        self._opened = await self._thread.run(self._make)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
