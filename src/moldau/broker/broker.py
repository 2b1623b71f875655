"""A broker: the parts, put together. Nothing below this layer constructs a service, a thread or a task."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom

from moldau.broker.adoption import adopt, keep_cluster_id, recorded_identity
from moldau.broker.cleaning import Cleaning
from moldau.broker.dispatch import Dispatcher
from moldau.broker.following import WHOLE_CLUSTER, Follower
from moldau.broker.group_commit import GroupCommit
from moldau.broker.groups import GroupCoordinator
from moldau.broker.listeners import Listeners
from moldau.broker.tasks import Periodic
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.image import BrokerInfo, ClusterImage, Endpoint
from moldau.cluster.metadata import Metadata
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock, SystemClock
from moldau.core.files import Files
from moldau.core.ids import BrokerId, TopicPartition
from moldau.core.listeners import Listener
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.handlers.context import Services
from moldau.log.data_directory import DirectoryError
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas

log = logging.getLogger(__name__)

METADATA_FILE = "metadata.sqlite"
SYNC_THREADS = 4
COLD_READ_THREADS = 2
IDLE_CHECK_MS_MAX = 10_000
INTERVAL_MS_MAX = 86_400_000


class BrokerStartError(Exception):
    """The broker cannot start; the message says what to do about it."""


class Broker:
    """One broker, from `start` to `stop`."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, files: Files | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._files = files or RealFiles()
        self._random = SystemRandom()
        self._threads = ThreadPoolExecutor(SYNC_THREADS, "moldau-sync")
        self._cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, "moldau-read")
        self._loop: asyncio.AbstractEventLoop
        self._periodic: list[Periodic] = []
        self._background: set[asyncio.Future[None]] = set()
        self._services: Services
        self._listeners: Listeners
        self._store: EmbeddedStore
        self._logs = LogManager(
            self._files,
            self._clock,
            config.data_directories,
            config_of=self._topic_config,
            new_uuid=lambda: os.urandom(16),
            on_offline=self._directory_failed,
            producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
        )
        self.broker_id = BrokerId(-1)
        self.addresses: list[str] = []
        self.failed: asyncio.Event

    @property
    def services(self) -> Services:
        """The parts, for tests."""
        return self._services

    async def start(self) -> None:
        """Open the data, then the ports."""
        self._loop = asyncio.get_running_loop()
        self.failed = asyncio.Event()
        try:
            self._logs.lock()
            await self._open_store()
            self._open_logs()
            await self._bind()
        except (DirectoryError, OSError) as error:
            await self._release()
            raise BrokerStartError(str(error)) from error
        await self._join_cluster()
        await self._listeners.accept()
        self._start_tasks()

    async def _open_store(self) -> None:
        directory = self._config.data_directories[0]
        self._store = EmbeddedStore(os.path.join(directory, METADATA_FILE))
        identity = recorded_identity(self._logs.directories)
        self._is_new = await keep_cluster_id(self._store, identity)
        self._metadata = Metadata(self._store, self._clock, os.urandom)
        await self._metadata.load()
        self.broker_id = await self._choose_broker_id(identity)
        self._logs.claim(self.broker_id, self._metadata.image.cluster_id)

    async def _choose_broker_id(self, identity: dict[str, str]) -> BrokerId:
        """The configured one, else the one this directory had before, else a new one."""
        recorded = identity.get("broker.id") or identity.get("node.id")
        if self._config.broker_id >= 0:
            return BrokerId(self._config.broker_id)
        if recorded is not None:
            return BrokerId(int(recorded))
        return BrokerId(await self._metadata.generate_broker_id(self._config.int("reserved.broker.max.id")))

    def _open_logs(self) -> None:
        image = self._metadata.image
        config = self._config.with_dynamic(
            image.broker_configs.get(WHOLE_CLUSTER, {}), image.broker_configs.get(str(self.broker_id), {})
        )
        committer = GroupCommit(self._loop, self._threads)
        self._services = Services(
            broker_id=self.broker_id,
            config=config,
            clock=self._clock,
            metadata=self._metadata,
            replicas=Replicas(),
            logs=self._logs,
            durability=Durability(config.string("log.flush.policy"), committer),
            random=self._random,
        )
        self._groups = GroupCoordinator(self._loop, self._services, lambda: os.urandom(16))
        self._services.groups = self._groups
        self._logs.load()

    async def _bind(self) -> None:
        services = self._services
        self._listeners = Listeners(self._loop, lambda: services.config, Dispatcher(services), self._cold_reads)
        advertised = {listener.name: listener for listener in self._config.advertised_listeners}
        self._endpoints: list[Endpoint] = []
        for listener in self._config.listeners:
            port = await self._listeners.bind(listener)
            told = advertised.get(listener.name, listener)
            endpoint = Endpoint(listener.name, told.host or "localhost", told.port or port, listener.security)
            self._endpoints.append(endpoint)
            bound = Listener(listener.name, listener.host or "localhost", port, listener.security)
            self.addresses.append(str(bound))

    async def _join_cluster(self) -> None:
        metadata = self._metadata
        follower = Follower(self._services)
        rack = self._config.optional_string("broker.rack")
        await metadata.register_broker(BrokerInfo(self.broker_id, rack, tuple(self._endpoints)))
        await metadata.claim_controller(self.broker_id)
        if self._is_new:
            await adopt(metadata, self._logs, self._files, self.broker_id)
        for listener in (follower.image_changed, self._groups.image_changed):
            listener(ClusterImage(), metadata.image)
            metadata.subscribe(listener)

    def _topic_config(self, topic: str) -> TopicConfig:
        known = self._metadata.image.topics.get(topic)
        return TopicConfig.of(self._services.config, known.configs if known is not None else {})

    def _start_tasks(self) -> None:
        def interval(name: str) -> Callable[[], int]:
            return lambda: max(1, min(INTERVAL_MS_MAX, self._services.config.long(name)))

        self._cleaning = Cleaning(self._services, self._files, self._threads)
        self._periodic = [
            Periodic(self._loop, interval("log.retention.check.interval.ms"), self._apply_retention),
            Periodic(self._loop, interval("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            Periodic(self._loop, interval("log.flush.scheduler.interval.ms"), self._flush_due),
            Periodic(self._loop, interval("log.cleaner.backoff.ms"), self._cleaning.look),
            Periodic(self._loop, interval("offsets.retention.check.interval.ms"), self._groups.expire_offsets),
            Periodic(self._loop, self._idle_check_ms, self._listeners.close_idle),
        ]

    def _idle_check_ms(self) -> int:
        idle_ms = self._services.config.long("connections.max.idle.ms")
        return min(IDLE_CHECK_MS_MAX, idle_ms // 2) if idle_ms > 1 else IDLE_CHECK_MS_MAX

    def _apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        for each in self._logs:
            each.roll_if_due(now_ms)
        marks = self._high_watermarks()
        self._logs.delete_expired(lambda partition: marks.get(partition, 0))
        self._in_thread(self._logs.remove_doomed)

    def _checkpoint(self) -> None:
        marks = self._high_watermarks()

        def work() -> None:
            self._logs.sync_sealed()
            self._logs.checkpoint(marks)

        self._in_thread(work)

    def _flush_due(self) -> None:
        """`flush.ms`: sync what was appended longer ago than that."""
        self._in_thread(lambda: [each.sync() for each in self._logs if each.log_end_offset > each.recovery_point])

    def _in_thread(self, work: Callable[[], object]) -> None:
        future = self._loop.run_in_executor(self._threads, lambda: _logged(work))
        self._background.add(future)
        future.add_done_callback(self._background.discard)

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.topic_partition: partition.high_watermark for partition in self._services.replicas}

    def _directory_failed(self, path: str, _: Sequence[Log]) -> None:
        """A broker without a directory left has nothing to serve: whoever runs it stops it. May come from a thread."""
        if all(directory.failure is not None for directory in self._logs.directories):
            log.critical("%s failed and no data directory is left", path)
            self._loop.call_soon_threadsafe(self.failed.set)

    async def stop(self) -> None:
        """Answer nobody any more, then leave the files so that the next start has nothing to check."""
        for task in self._periodic:
            task.stop()
        self._groups.close()
        self._listeners.close()
        await self._cleaning.stop()
        if self._background:
            await asyncio.wait(self._background)
        self._logs.close(self._high_watermarks(), self._threads)
        await self._release()

    async def _release(self) -> None:
        for directory in self._logs.directories:
            directory.release()
        if hasattr(self, "_store"):
            await self._store.close()
        self._threads.shutdown()
        self._cold_reads.shutdown()


def _logged(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        log.exception("background work failed; it is tried again at the next interval")
