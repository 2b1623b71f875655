"""A broker: the parts, put together. Nothing below this layer constructs a service, a thread or a task."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from random import SystemRandom
from typing import Any

from moldau.broker.adoption import adopt, check_store, keep_cluster_id, recorded_identity
from moldau.broker.cleaner import Cleaner
from moldau.broker.cluster_member import ClusterMember
from moldau.broker.controller import Controller
from moldau.broker.coordinator import Coordinator
from moldau.broker.directory_threads import DirectoryThreads, ReadThreads
from moldau.broker.dispatch import Dispatcher
from moldau.broker.fetchers import Fetchers
from moldau.broker.group_commit import committer
from moldau.broker.group_coordinator import SHARD_MODULE, GroupCoordinator
from moldau.broker.heap import Heap
from moldau.broker.listeners import Listeners
from moldau.broker.metadata_refresh import MetadataRefresh
from moldau.broker.opener_thread import OpenerThread
from moldau.broker.ownership import check_directories
from moldau.broker.registration import BrokerStartError
from moldau.broker.roles import WHOLE_CLUSTER
from moldau.broker.store_choice import (
    StorePlace,
    choose_store,
    lock_siblings,
    looks_for_siblings,
    open_store,
    remember,
)
from moldau.broker.strays import StrayReason, is_still_stray, why_stray
from moldau.broker.tasks import Periodic
from moldau.broker.watchdog import Watchdog
from moldau.cluster import znodes
from moldau.cluster.image import BrokerInfo, Endpoint
from moldau.cluster.metadata import Metadata
from moldau.cluster.store import MetadataStore, SessionState, StoreError
from moldau.cluster.topic_names import INTERNAL_TOPICS
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock, SystemClock
from moldau.core.files import DirectoryLock, Files
from moldau.core.ids import BrokerId, TopicPartition
from moldau.core.invariants import InvariantError
from moldau.core.listeners import Listener
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.data_directory import DirectoryError
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.protocol.errors import ApiError
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.requests.context import Services

log = logging.getLogger(__name__)

WORK_THREADS = 4
IDLE_CHECK_MS_MAX = 10_000
INTERVAL_MS_MAX = 86_400_000
ROOM_CHECK_MS = 1_000
SIBLINGS_START_S_MAX = 30.0
SIBLINGS_LOOK_AGAIN_S = 0.01
CONTROLLER_AWAITED_S = 5.0
TAKING_OVER_MS = 2_000
"""How long an old registration of ours may take to go, beyond what its session takes to end."""


class Broker:
    """One broker, from `start` to `stop`."""

    def __init__(
        self, config: BrokerConfig, *, clock: Clock | None = None, files: Files | None = None, may_adopt: bool = False
    ) -> None:
        """`may_adopt`: a metadata store that is not the one the directories were used with is not refused."""
        self._config = config
        self._may_adopt = may_adopt
        self._clock = clock or SystemClock()
        self._files = files or RealFiles(lambda delay_s, call: self._loop.call_later(delay_s, call))
        self._random = SystemRandom()
        self._threads = ThreadPoolExecutor(WORK_THREADS, "moldau-work")
        self._directory_threads = DirectoryThreads(config.data_directories)
        self._cold_reads = ReadThreads(config.data_directories)
        self._loop: asyncio.AbstractEventLoop
        self._periodic: list[Periodic] = []
        self._services: Services
        self._listeners: Listeners
        self._metadata: Metadata
        self._member: ClusterMember
        self.store: MetadataStore
        self._logs = LogManager(
            self._files,
            self._clock,
            config.data_directories,
            config_of=self._topic_config,
            new_uuid=lambda: os.urandom(16),
            on_offline=self._directory_failed,
            producer_id_expiration_ms=config.int("producer.id.expiration.ms"),
            vital_topics=INTERNAL_TOPICS,
            ballast_bytes=config.long("log.dir.ballast.bytes"),
        )
        self.broker_id = BrokerId(-1)
        self.addresses: list[str] = []
        self.watchdog: Watchdog | None = None
        self.failed: asyncio.Event

    @property
    def services(self) -> Services:
        """The parts, for tests."""
        return self._services

    @property
    def controller(self) -> Controller:
        return self._member.controller

    @property
    def fetchers(self) -> Fetchers:
        return self._member.fetchers

    async def start(self) -> None:
        """Make sure of the directories, the ports and the store, in this order; only then touch the data."""
        self._loop = asyncio.get_running_loop()
        self.failed = asyncio.Event()
        try:
            self._check_directories()
            self._logs.lock()
            self._check_directories()  # again: nobody can change it any more
            await self._bind()
            await self._open_store()
            await self._open_logs()
            await self._join_cluster()
            await self._member.until_controlled(CONTROLLER_AWAITED_S)
            dispatcher = Dispatcher(self._services, self._heap.much_was_freed)
            await self._listeners.accept(dispatcher)
        except (DirectoryError, OSError, StoreError, BrokerStartError) as error:
            await self._release()
            raise BrokerStartError(_reason(error)) from error
        if self._config.bool("loop.watchdog.enable"):
            self.watchdog = Watchdog(
                self._loop, dispatcher.request_at_work, look_s=self._config.int("loop.watchdog.interval.ms") / 1000
            )
            self.watchdog.start()
        self._start_tasks()

    def _check_directories(self) -> None:
        names = ("metadata.store.path", "zookeeper.connect")
        names_store = any(self._config.optional_string(name) for name in names)
        check_directories(self._config.data_directories, self._files, names_store=names_store)

    async def _open_store(self) -> None:
        siblings = await self._turn_among_siblings()
        try:
            place = choose_store(self._config, self._files)
            identity = recorded_identity(self._logs.directories)
            if place.zookeeper is None and not self._files.exists(place.path):
                self._check_store(place, None)  # before there is a file
            self.store = open_store(place, self._config, self._files)
            known = await self.store.get(znodes.CLUSTER_ID)
            is_another = self._check_store(place, known.data if known is not None else None)
            self._is_new = await keep_cluster_id(self.store, identity, znodes.id_text(os.urandom(16)))
            self._adopts = self._is_new or is_another
            self._refreshing = MetadataRefresh(self._loop, lambda: self._metadata.catch_up())
            self._metadata = Metadata(self.store, self._clock, os.urandom, self._refreshing.stale)
            await self._metadata.load()
            self.broker_id = await self._choose_broker_id(identity)
            known = await self.store.get(znodes.CLUSTER_ID)
            store_id = znodes.parse_store_id(known.data) if known is not None else None
            self._logs.claim(self.broker_id, self._metadata.image.cluster_id, store_id)
            if place.is_joined:
                remember(self._config, self._files, place)
        finally:
            if siblings is not None:
                siblings.release()

    def _check_store(self, place: StorePlace, cluster: bytes | None) -> bool:
        where = f"ZooKeeper at {place.zookeeper}" if place.zookeeper is not None else place.path
        return check_store(self._logs.directories, where, cluster, adopt=self._may_adopt)

    async def _turn_among_siblings(self) -> DirectoryLock | None:
        """New brokers side by side start one after the other, so that the second finds what the first has made."""
        deadline = self._loop.time() + SIBLINGS_START_S_MAX
        while looks_for_siblings(self._config, self._files) and self._loop.time() < deadline:
            try:
                lock = lock_siblings(self._config, self._files)
            except OSError as error:
                log.warning(
                    "another user may have made what new brokers take turns by (%s): not waiting for any", error
                )
                return None
            if lock is not None:
                return lock
            await asyncio.sleep(SIBLINGS_LOOK_AGAIN_S)
        return None

    async def _choose_broker_id(self, identity: dict[str, str]) -> BrokerId:
        """The configured one, else the one this directory had before, else a new one."""
        recorded = identity.get("broker.id") or identity.get("node.id")
        if self._config.broker_id >= 0:
            return BrokerId(self._config.broker_id)
        if recorded is not None:
            return BrokerId(int(recorded))
        return BrokerId(await self._metadata.generate_broker_id(self._config.int("reserved.broker.max.id")))

    async def _open_logs(self) -> None:
        image = self._metadata.image
        config = self._config.with_dynamic(
            image.broker_configs.get(WHOLE_CLUSTER, {}), image.broker_configs.get(str(self.broker_id), {})
        )
        self._services = Services(
            broker_id=self.broker_id,
            config=config,
            clock=self._clock,
            metadata=self._metadata,
            replicas=Replicas(self._metadata),
            logs=self._logs,
            durability=Durability(
                config.string("log.flush.policy"), committer(self._loop, self._directory_threads.syncs)
            ),
            random=self._random,
        )
        self._heap = Heap(self._loop)
        self._services.opener = self._opener = OpenerThread(self._loop, self._heap)
        self._groups = GroupCoordinator(self._loop, self._services, lambda: os.urandom(16))
        self._services.groups = self._groups
        self._coordinators: list[Coordinator[Any]] = [self._groups]
        # In a thread: after a crash much may have to be checked, and the loop has a session to keep alive.
        await self._loop.run_in_executor(self._threads, self._logs.load, image.topic_names_by_id)
        self._logs.belong_to_this_thread()
        if self.store.session_state is SessionState.LOST:
            await self.store.reconnect()
            await self._metadata.reload()
        for each in self._logs:
            self._sort_out(each)
        if not self._adopts:
            self._logs.strays.note(self._clock.now_ms(), self._is_stray)

    def _is_stray(self, topic_id: bytes | None, partition: TopicPartition) -> bool:
        return is_still_stray(self._metadata.image, topic_id, partition.partition, self.broker_id)

    def _sort_out(self, each: Log) -> None:
        """Set a log aside if it is proved that the cluster has no use for it: its topic was deleted or made anew, or
        has other replicas now. Without proof it is left alone."""
        reason = why_stray(self._metadata.image, each, self.broker_id)
        if reason is None or (self._adopts and reason is StrayReason.TOPIC_GONE):
            return
        if self._adopts or not self._logs.was_ours(each.topic_partition):
            log.warning("%s is left alone: %s, and it is not proved that it may go", each.directory, reason.value)
            self._logs.leave_alone(each.topic_partition)
        else:
            log.warning("%s is a stray: %s; its directory is renamed", each.topic_partition, reason.value)
            self._logs.set_stray(each.topic_partition)

    async def _bind(self) -> None:
        self._listeners = Listeners(self._loop, self._config_now, self._cold_reads)
        advertised = {listener.name: listener for listener in self._config.advertised_listeners}
        self._endpoints: list[Endpoint] = []
        for listener in self._config.listeners:
            port = await self._listeners.bind(listener)
            told = advertised.get(listener.name, listener)
            endpoint = Endpoint(listener.name, told.host or "localhost", told.port or port, listener.security)
            self._endpoints.append(endpoint)
            bound = Listener(listener.name, listener.host or "localhost", port, listener.security)
            self.addresses.append(str(bound))

    def _config_now(self) -> BrokerConfig:
        return self._services.config if hasattr(self, "_services") else self._config

    async def _join_cluster(self) -> None:
        rack = self._config.optional_string("broker.rack")
        self._member = ClusterMember(
            self._loop,
            self._services,
            self.store,
            self._coordinators,
            BrokerInfo(self.broker_id, rack, tuple(self._endpoints)),
            patience_s=self._patience_ms() / 1000,
            on_failed=self._fail,
        )
        await self._member.register()
        if self._adopts:
            await adopt(self._metadata, self._logs, self._files, self.broker_id)
            for each in self._logs:
                self._sort_out(each)
        self._member.take_part()

    def _patience_ms(self) -> int:
        """A process that is gone is noticed at once on one machine, and only by its silence in an ensemble."""
        far_away = self._config.optional_string("zookeeper.connect")
        return TAKING_OVER_MS + (self._config.int("zookeeper.session.timeout.ms") if far_away else 0)

    def _topic_config(self, topic: str) -> TopicConfig:
        known = self._metadata.image.topics.get(topic)
        return TopicConfig.of(self._services.config, known.configs if known is not None else {})

    def _start_tasks(self) -> None:
        def interval(name: str) -> Callable[[], int]:
            return lambda: max(1, min(INTERVAL_MS_MAX, self._services.config.long(name)))

        # Neither the start nor the first group waits for the 50 ms that this import takes.
        self._threads.submit(import_module, SHARD_MODULE)
        self._cleaner = Cleaner(self._services, self._files, self._threads)
        self._periodic = [
            Periodic(self._loop, interval("log.retention.check.interval.ms"), self._apply_retention),
            Periodic(self._loop, interval("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            Periodic(self._loop, interval("replica.high.watermark.checkpoint.interval.ms"), self._checkpoint_marks),
            Periodic(self._loop, interval("log.flush.scheduler.interval.ms"), self._flush_due),
            Periodic(self._loop, interval("log.cleaner.backoff.ms"), self._cleaner.look),
            *map(self._periodic_clean_up, self._coordinators),
            Periodic(self._loop, self._idle_check_ms, self._listeners.close_idle),
            Periodic(self._loop, self._lag_check_ms, self._member.isr_changes.check_lag),
            Periodic(self._loop, lambda: ROOM_CHECK_MS, self._look_for_room),
        ]
        if self._config.bool("auto.leader.rebalance.enable"):
            self._periodic.append(Periodic(self._loop, self._rebalance_ms, self._member.controller.rebalance))

    def coordinate(self, coordinator: Coordinator[Any]) -> None:
        """Let one more coordinator have the shards that this broker leads, from now on until the broker ends."""
        self._coordinators.append(coordinator)
        self._periodic.append(self._periodic_clean_up(coordinator))
        self._member.coordinators_changed()

    def _periodic_clean_up(self, coordinator: Coordinator[Any]) -> Periodic:
        def interval_ms() -> int:
            return max(1, min(INTERVAL_MS_MAX, coordinator.settings().clean_up_interval_ms))

        return Periodic(self._loop, interval_ms, coordinator.clean_up)

    def _idle_check_ms(self) -> int:
        idle_ms = self._services.config.long("connections.max.idle.ms")
        return min(IDLE_CHECK_MS_MAX, idle_ms // 2) if idle_ms > 1 else IDLE_CHECK_MS_MAX

    def _lag_check_ms(self) -> int:
        return max(1, self._services.config.long("replica.lag.time.max.ms") // 2)

    def _rebalance_ms(self) -> int:
        return min(INTERVAL_MS_MAX, 1000 * self._services.config.long("leader.imbalance.check.interval.seconds"))

    def _apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        for each in self._logs:
            with contextlib.suppress(ApiError):  # it is tried again at the next interval, or offline and has said so
                each.roll_if_due(now_ms)
        marks = self._high_watermarks()
        self._logs.delete_expired(lambda partition: marks.get(partition, 0))
        stray_ms = self._services.config.long("log.stray.retention.ms")

        def remove(path: str) -> None:
            self._logs.remove_doomed(path)
            if stray_ms >= 0 and not self._adopts:
                self._logs.remove_strays(stray_ms, self._is_stray, path)

        self._directory_threads.in_each("remove", remove)

    def _look_for_room(self) -> None:
        """While a disk is full, what may go goes at once."""
        if self._logs.is_full:
            self._apply_retention()
        self._directory_threads.in_each("room", self._logs.look_for_room)

    def _checkpoint(self) -> None:
        marks = self._high_watermarks()

        def work(path: str) -> None:
            self._logs.sync_sealed(path)
            self._logs.checkpoint(marks, path)

        self._directory_threads.in_each("checkpoint", work)

    def _checkpoint_marks(self) -> None:
        marks = self._high_watermarks()
        self._directory_threads.in_each(
            "high watermarks", lambda path: self._logs.checkpoint_high_watermarks(marks, path)
        )

    def _flush_due(self) -> None:
        """`flush.ms`: sync what was appended longer ago than that."""
        self._directory_threads.in_each("flush", self._logs.sync_all)

    def _high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.topic_partition: partition.high_watermark for partition in self._services.replicas}

    def _directory_failed(self, path: str, logs: Sequence[Log]) -> None:
        """A broker without a directory left has nothing to serve: whoever runs it stops it. May come from a thread."""
        partitions = [each.topic_partition for each in logs]
        self._loop.call_soon_threadsafe(self._partitions_failed, partitions)
        if all(directory.failure is not None for directory in self._logs.directories):
            self._loop.call_soon_threadsafe(self._fail, f"{path} failed and no data directory is left")

    def _partitions_failed(self, partitions: list[TopicPartition]) -> None:
        if self._periodic:  # else the start is under way and sees for itself
            self._member.directory_failed(partitions)

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody caught, for the loop of a process with this broker alone. If it says that we broke a
        promise of our own, and no partition has stopped for it, then the broker does."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if isinstance(error, InvariantError):
            self._fail(f"the broker ends: {error}")

    def _fail(self, reason: str) -> None:
        log.critical("%s", reason)
        self.failed.set()

    async def stop(self) -> bool:
        """Let others lead, answer nobody any more, then leave the files so that the next start has nothing to check.

        False: it will have to check, as something could not be written.
        """
        await self._member.hand_over()
        await self._end()
        is_clean = self._logs.close(self._high_watermarks(), self._threads)
        await self._release()
        return is_clean

    async def abort(self) -> None:
        """Leave everything as `kill -9` would: nothing is handed over, nothing noted. For tests."""
        await self._end()
        await self._release()

    async def _end(self) -> None:
        if self.watchdog is not None:
            self.watchdog.stop()
        for task in self._periodic:
            task.stop()
        for coordinator in self._coordinators:
            coordinator.close()
        self._listeners.close()  # also below; here so that nobody is answered any more
        await self._member.close()
        await self._cleaner.stop()
        await self._directory_threads.wait()

    async def _release(self) -> None:
        if hasattr(self, "_listeners"):
            self._listeners.close()
        for directory in self._logs.directories:
            directory.release()
        if hasattr(self, "_refreshing"):
            await self._refreshing.close()
        if hasattr(self, "store"):
            await self.store.close()
        if hasattr(self, "_opening"):
            self._opener.close()
            self._heap.close()
        self._threads.shutdown()
        self._directory_threads.shutdown()
        self._cold_reads.shutdown()


def _reason(error: Exception) -> str:
    """Why the broker does not start."""
    return f"the metadata store does not answer ({error!r})" if isinstance(error, StoreError) else str(error)
