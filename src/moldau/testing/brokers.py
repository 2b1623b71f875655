"""Brokers that live in the process of a test."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from moldau.broker.broker import Broker
from moldau.core.broker_config import BrokerConfig

TEST_DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.flush.policy": "os",  # a test does not outlive a power cut
}


class BrokerInLoop:
    """A broker in the running event loop."""

    def __init__(self, data: str | Path, properties: Mapping[str, str] | None = None) -> None:
        self.data = str(data)
        self._properties = {**TEST_DEFAULTS, **(properties or {}), "log.dirs": self.data}
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself, while it runs."""
        if self._broker is None:
            raise RuntimeError("the broker is not running")
        return self._broker

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return self.broker.addresses[0].rpartition("/")[2]

    async def start(self) -> None:
        config, unknown = BrokerConfig.parse(self._properties)
        if unknown:
            raise ValueError(f"unknown properties: {', '.join(unknown)}")
        broker = Broker(config)
        await broker.start()
        self._broker = broker
        self._keep_address()

    async def stop(self) -> None:
        """Shut down cleanly."""
        broker, self._broker = self.broker, None
        await broker.stop()

    def _keep_address(self) -> None:
        """After a restart clients find the broker at the same address."""
        self._properties["listeners"] = ",".join(self.broker.addresses)


class BrokerInThread:
    """A broker in a thread with a loop of its own."""

    def __init__(self, data: str | Path, properties: Mapping[str, str] | None = None) -> None:
        self._inner = BrokerInLoop(data, properties)
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return self._inner.bootstrap

    @property
    def data(self) -> str:
        """The data directory."""
        return self._inner.data

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
        if self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._inner.stop(), self._loop).result()
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
    with _directory(data) as directory:
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
    """The same in the running event loop."""
    with _directory(data) as directory:
        running = BrokerInLoop(directory, properties)
        await running.start()
        try:
            yield running
        finally:
            await running.stop()


@contextmanager
def _directory(data: str | Path | None) -> Iterator[str]:
    if data is not None:
        yield str(data)
        return
    directory = tempfile.mkdtemp(prefix="moldau-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
