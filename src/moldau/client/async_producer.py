"""`moldau.aio.Producer`: the producer for asyncio.

async with Producer("localhost:9092", value=JSON) as producer:
    await producer.send_and_wait("visits", {"page": "/"}, key="praha")
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Self

from moldau.client import producer as threaded
from moldau.client.errors import ClientError
from moldau.client.one_thread import OneThread
from moldau.client.producer import WAIT_FOR_ROOM_S, Partitioner
from moldau.client.records import HeadersIn, Sent
from moldau.client.serdes import PLAIN, Serde
from moldau.client.settings import Bootstrap

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import TypeVar

    from moldau.client.async_consumer import Consumer

    K = TypeVar("K", default=str | bytes)
    V = TypeVar("V", default=str | bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

LOOK_FOR_ROOM_S = 0.01


class SentSoon(asyncio.Future[Sent]):
    """Future of one record, in the loop. Of one that fails and that nobody awaits `flush` tells."""

    def __init__(self, delivery: threaded.Delivery) -> None:
        super().__init__()
        self._delivery = delivery
        Future.add_done_callback(delivery, self._settled)  # not watched yet: nobody has asked

    def _settled(self, delivery: "Future[Sent]") -> None:
        """Go on in the loop, from the producer's thread; a loop that is closed has nobody who waits."""
        with suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._take, delivery)

    def _take(self, delivery: "Future[Sent]") -> None:
        if self.done():
            return
        error = Future.exception(delivery)
        if error is None:
            self.set_result(Future.result(delivery))
        else:
            self.set_exception(error)
            super().exception()  # told by flush if not here: asyncio need not tell it, too

    def __await__(self) -> Generator[Any, None, Sent]:
        self._delivery.is_watched = True
        return super().__await__()

    def result(self) -> Sent:
        self._delivery.is_watched = True
        return super().result()

    def exception(self) -> BaseException | None:
        self._delivery.is_watched = True
        return super().exception()


class Producer(Generic[K, V]):
    """Sends records, from one event loop. The arguments are those of `moldau.Producer`."""

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        key: Serde[K] = PLAIN,  # type: ignore[assignment]  # a default for a type that the caller chooses
        value: Serde[V] = PLAIN,  # type: ignore[assignment]  # the same
        acks: str | int = "all",
        partitioner: Partitioner[K, V] | str | None = None,
        transactional_id: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._producer: threaded.Producer[K, V] = threaded.Producer(
            bootstrap,
            key=key,
            value=value,
            acks=acks,
            partitioner=partitioner,
            transactional_id=transactional_id,
            properties=properties,
        )
        self._may_block = key.may_block or value.may_block
        self._thread = OneThread("moldau-aio-producer")
        self._order = asyncio.Lock()

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersIn | None = None,
        timestamp: "datetime | float | None" = None,
    ) -> SentSoon:
        """Queue a record; returns a future of its place. Waits only while the buffer is full."""

        def offer() -> threaded.Delivery | None:
            more = {"partition": partition, "headers": headers, "timestamp": timestamp}
            return self._producer.offer(topic, value, key, **more)  # type: ignore[arg-type]  # each of its own type

        async with self._order:  # who came first is sent first, also if his serde has to ask a registry
            return await self._accepted(topic, offer)

    async def _accepted(self, topic: str, offer: Callable[[], threaded.Delivery | None]) -> SentSoon:
        deadline = asyncio.get_running_loop().time() + WAIT_FOR_ROOM_S
        while True:
            if self._may_block or not self._producer.knows_partitions(topic):
                delivery = await self._thread.run(offer)
            else:
                delivery = offer()
            if delivery is not None:
                return SentSoon(delivery)
            if asyncio.get_running_loop().time() > deadline:
                raise ClientError(f"no room in the buffer for {WAIT_FOR_ROOM_S:.0f} s: does a broker answer?")
            await asyncio.sleep(LOOK_FOR_ROOM_S)

    async def send_and_wait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: HeadersIn | None = None,
        timestamp: "datetime | float | None" = None,
    ) -> Sent:
        """The place of a record that the cluster has. Raises ClientError."""
        return await (await self.send(topic, value, key, partition=partition, headers=headers, timestamp=timestamp))

    @asynccontextmanager
    async def transaction(self, consumer: "Consumer[Any, Any] | None" = None) -> AsyncIterator[None]:
        """Send all records of the `async with` block or none; see `moldau.Producer.transaction`."""
        inner = None if consumer is None else consumer.threaded
        work = self._producer.transaction(inner)
        # a consumer's calls stay in its own thread: nobody else may use it meanwhile
        thread = self._thread if consumer is None else consumer.thread
        await thread.run(work.__enter__)
        try:
            yield
        except BaseException as error:
            caught = error  # a name that outlives the block

            def leave() -> None:
                work.__exit__(type(caught), caught, caught.__traceback__)

            await asyncio.shield(thread.run(leave))
            if consumer is not None:
                consumer.forget()
            raise
        if consumer is not None:
            consumer.hand_over()
        await asyncio.shield(thread.run(lambda: work.__exit__(None, None, None)))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every record is sent or has failed; see `moldau.Producer.flush`."""
        await self._thread.run(lambda: self._producer.flush(timeout_s))

    async def close(self) -> None:
        """Flush, and end."""
        try:
            await self._thread.run(self._producer.close)
        finally:
            self._thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            await self.close()
        except ClientError:
            if kind is None:  # an exception of the block says more
                raise
