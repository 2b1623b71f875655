"""Brokers that live in the process of a test: in its event loop, or in threads with loops of their own."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from moldau.broker.broker import Broker
from moldau.broker.watchdog import Watchdog
from moldau.cluster.image import ClusterImage
from moldau.core.broker_config import BrokerConfig
from moldau.core.files import Files
from moldau.testing.ports import HOST, free_ports

FOR_TESTS = {
    "log.flush.policy": "os",  # a test does not outlive a power cut
    "log.dir.ballast.bytes": "0",  # nor does it fill a disk
    "group.initial.rebalance.delay.ms": "0",  # its consumers are few, and it waits for the first
    "metrics.listener": "",  # many brokers run side by side, and few tests ask
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}
"""Properties of a test's broker that are not Kafka's defaults; the test's own come after them."""


class BrokerInLoop:
    """A broker in the running event loop."""

    def __init__(
        self, data: str | Path, properties: Mapping[str, str] | None = None, *, files: Files | None = None
    ) -> None:
        """Make the broker, over the machine's own `files` unless others are given."""
        self.data = str(data)
        self._files = files
        (port,) = free_ports(1)
        self._properties = {
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            **FOR_TESTS,
            **(properties or {}),
            "log.dirs": self.data,
        }
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself, while it runs."""
        if self._broker is None:
            raise RuntimeError("the broker is not running")
        return self._broker

    @property
    def bootstrap(self) -> str:
        """The addresses for a client's `bootstrap.servers`."""
        return self.broker.addresses[0].rpartition("/")[2]

    async def start(self) -> None:
        config, unknown = BrokerConfig.parse(self._properties)
        if unknown:
            raise ValueError(f"unknown properties: {', '.join(unknown)}")
        broker = Broker(config, files=self._files)
        await broker.start()
        self._broker = broker
        self._keep_address()

    async def stop(self) -> None:
        """Shut down cleanly."""
        broker, self._broker = self.broker, None
        await broker.stop()

    async def kill(self) -> None:
        """End the broker as `kill -9` would, and leave everything as it is."""
        broker, self._broker = self.broker, None
        await broker.abort()

    def _keep_address(self) -> None:
        """Keep the address, so that clients find the broker there after a restart."""
        self._properties["listeners"] = ",".join(self.broker.addresses)


class BrokerInThread:
    """A broker in a thread with a loop of its own."""

    def __init__(
        self, data: str | Path, properties: Mapping[str, str] | None = None, *, files: Files | None = None
    ) -> None:
        self._inner = BrokerInLoop(data, properties, files=files)
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses for a client's `bootstrap.servers`."""
        return self._inner.bootstrap

    @property
    def data(self) -> str:
        """The data directory."""
        return self._inner.data

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def broker(self) -> Broker:
        """The broker itself, while it runs; it belongs to its own thread."""
        return self._inner.broker

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        return self._inner.broker.services.metadata.image

    @property
    def watchdog(self) -> Watchdog | None:
        """The watchdog that knows when the broker's event loop stood still; None if `loop.watchdog.enable` is false."""
        return self._inner.broker.watchdog

    def on_image(self, listener: Callable[[ClusterImage], None]) -> Callable[[], None]:
        """Call `listener`, in the broker's thread, with every new image. Returns a function that ends this."""
        metadata = self._inner.broker.services.metadata

        async def subscribe() -> Callable[[], None]:
            return metadata.subscribe(lambda _, new: listener(new))

        end = asyncio.run_coroutine_threadsafe(subscribe(), self._loop).result()

        def end_in_loop() -> None:
            if self.is_running:
                self._loop.call_soon_threadsafe(end)

        return end_in_loop

    def start(self) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moldau-broker", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._inner.start(), self._loop).result()
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(self._inner.stop)

    def kill(self) -> None:
        """End the broker as `kill -9` would, and leave everything as it is."""
        self._end(self._inner.kill)

    def _end(self, how: Callable[[], Coroutine[None, None, None]]) -> None:
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(how(), self._loop).result()
        self._end_thread()

    def restart(self) -> None:
        """Stop and start again, at the same address with the same data."""
        self.stop()
        self.start()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._thread = None


@contextmanager
def broker(properties: Mapping[str, str] | None = None, data: str | Path | None = None) -> Iterator[BrokerInThread]:
    """A running broker; its data is removed afterwards unless `data` says where to keep it."""
    with directory_for(data) as directory:
        running = BrokerInThread(directory, properties)
        running.start()
        try:
            yield running
        finally:
            running.stop()


@asynccontextmanager
async def async_broker(
    properties: Mapping[str, str] | None = None, data: str | Path | None = None
) -> AsyncIterator[BrokerInLoop]:
    """A running broker in the running event loop; its data is removed afterwards unless `data` says where to keep
    it."""
    with directory_for(data) as directory:
        running = BrokerInLoop(directory, properties)
        await running.start()
        try:
            yield running
        finally:
            await running.stop()


@contextmanager
def directory_for(data: str | Path | None) -> Iterator[str]:
    """`data`, or a temporary directory that is removed afterwards."""
    if data is not None:
        yield str(data)
        return
    directory = tempfile.mkdtemp(prefix="moldau-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
