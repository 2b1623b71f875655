"""A broker: the parts, put together. Nothing below this layer constructs a service, a thread or a task.

Law: a broker is whole or not there. `start` makes every part from parts that are complete, and what it has taken by
then is given back, the last first, when it fails or at the end.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.broker.adoption import adopt
from moldau.broker.background_imports import BackgroundImports
from moldau.broker.cleaner import Cleaner
from moldau.broker.cluster_member import ClusterMember
from moldau.broker.controller import Controller
from moldau.broker.coordinator import Coordinator
from moldau.broker.directory_threads import DirectoryThreads, ReadThreads
from moldau.broker.dispatch import Dispatcher
from moldau.broker.fetchers import Fetchers
from moldau.broker.group_commit import committer, engine_logs_min
from moldau.broker.group_coordinator import GroupCoordinator
from moldau.broker.heap import Heap
from moldau.broker.housekeeping import Housekeeping
from moldau.broker.listeners import Listeners
from moldau.broker.metrics.listener import MetricsListener, Page, Question
from moldau.broker.metrics.observed import Observed
from moldau.broker.opener_thread import OpenerThread
from moldau.broker.ownership import check_directories
from moldau.broker.parts import make_parts, make_services
from moldau.broker.registration import BrokerStartError
from moldau.broker.roles import WHOLE_CLUSTER
from moldau.broker.start_failures import reason
from moldau.broker.store_opening import OpenedStore, StoreOpening
from moldau.broker.strays import StrayReason, is_still_stray, why_stray
from moldau.broker.sync_engines import sync_engines
from moldau.broker.transaction_coordinator import TransactionCoordinator
from moldau.broker.transaction_verifier import CoordinatorVerifier
from moldau.broker.watchdog import Watchdog
from moldau.cluster.features import transaction_version
from moldau.cluster.image import BrokerInfo, Endpoint
from moldau.cluster.store import MetadataStore, SessionState, StoreError
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import Clock, SystemClock
from moldau.core.dynamic_config import DynamicConfig
from moldau.core.files import Files
from moldau.core.ids import BrokerId, TopicPartition
from moldau.core.internal_topics import INTERNAL_TOPICS
from moldau.core.invariants import InvariantError
from moldau.core.listeners import Address, Listener
from moldau.core.real_files import RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.data_directory import DirectoryError
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.replication.durability import Durability
from moldau.replication.replicas import Replicas
from moldau.requests.context import Services
from moldau.requests.markers import LocalMarkers
from moldau.requests.parts import Parts

if TYPE_CHECKING:
    from moldau.broker.metrics.pages import Pages

log = logging.getLogger(__name__)

WORK_THREADS = 4
CONTROLLER_AWAITED_S = 5.0
TAKING_OVER_MS = 2_000
"""Time that an old registration of ours may take to go, beyond the end of its session."""


class _Ground(NamedTuple):
    """Threads and files of a start, before anything is known of the cluster."""

    loop: asyncio.AbstractEventLoop
    files: Files
    threads: ThreadPoolExecutor
    directory_threads: DirectoryThreads
    cold_reads: ReadThreads


class _Running(NamedTuple):
    """All of a broker that has started."""

    ground: _Ground
    store: MetadataStore
    parts: Parts
    services: Services
    member: ClusterMember
    coordinators: list[Coordinator[Any]]
    listeners: "_Bound"
    cleaner: Cleaner
    housekeeping: Housekeeping
    watchdog: Watchdog | None


class _Bound(NamedTuple):
    """Listeners with their ports: how they are advertised, and where they really are."""

    listeners: Listeners
    endpoints: tuple[Endpoint, ...]
    addresses: list[str]
    metrics: MetricsListener


class Broker:
    """One broker, from `start` to `stop`."""

    def __init__(
        self, config: BrokerConfig, *, clock: Clock | None = None, files: Files | None = None, may_adopt: bool = False
    ) -> None:
        """`may_adopt`: a metadata store that is not the one the directories were used with is not refused."""
        self._config = config
        self._dynamic_config = DynamicConfig(config)
        self._may_adopt = may_adopt
        self._clock = clock or SystemClock()
        self._files = files
        self._to_release = AsyncExitStack()
        self._is_running: _Running | None = None
        self.failed = asyncio.Event()

    # A broker that runs

    @property
    def _running(self) -> _Running:
        if self._is_running is None:
            raise RuntimeError("the broker has not started")
        return self._is_running

    @property
    def broker_id(self) -> BrokerId:
        return self._running.parts.broker_id

    @property
    def addresses(self) -> list[str]:
        """Addresses on which it listens."""
        return self._running.listeners.addresses

    @property
    def metrics_address(self) -> Address | None:
        """Address at which metrics are served; None: they are not."""
        return self._running.listeners.metrics.address

    @property
    def watchdog(self) -> Watchdog | None:
        return self._running.watchdog

    @property
    def parts(self) -> Parts:
        """The parts, for tests."""
        return self._running.parts

    @property
    def services(self) -> Services:
        """The parts that handlers see, for tests."""
        return self._running.services

    @property
    def store(self) -> MetadataStore:
        return self._running.store

    @property
    def controller(self) -> Controller:
        return self._running.member.controller

    @property
    def fetchers(self) -> Fetchers:
        return self._running.member.fetchers

    def coordinate(self, coordinator: Coordinator[Any]) -> None:
        """Let one more coordinator have the shards that this broker leads, from now on until the broker ends."""
        running = self._running
        running.coordinators.append(coordinator)
        running.housekeeping.clean_up_for(coordinator)
        running.member.coordinators_changed()

    # The start

    async def start(self) -> None:
        """Make sure of the directories, the ports and the store, in this order; only then touch the data."""
        try:
            self._is_running = await self._put_together()
        except (DirectoryError, OSError, StoreError, BrokerStartError) as error:
            await self._to_release.aclose()
            raise BrokerStartError(reason(error, self._directories())) from error

    def _directories(self) -> list[str]:
        """The directories that this broker writes to."""
        store = self._config.optional_string("metadata.store.path")
        return [*self._config.data_directories, *([os.path.dirname(os.path.abspath(store))] if store else [])]

    async def _put_together(self) -> _Running:
        ground = self._ground(asyncio.get_running_loop())
        logs = self._lock_directories(ground, lambda topic: self._topic_config(opened, topic))
        bound = await self._bind(ground)
        opening = StoreOpening(ground.loop, self._config, self._clock, ground.files, logs, may_adopt=self._may_adopt)
        opened = await opening.open(self._to_release)
        parts = self._parts(ground, opened, logs)
        groups = GroupCoordinator(ground.loop, parts, lambda: os.urandom(16))
        transactions = TransactionCoordinator(ground.loop, parts, lambda: transaction_version(parts.metadata.image))
        coordinators: list[Coordinator[Any]] = [groups, transactions]
        await self._load_logs(ground, opened, logs)
        member = await self._join_cluster(ground, opened, parts, coordinators, bound.endpoints)
        await member.until_controlled(CONTROLLER_AWAITED_S)
        heap = Heap(ground.loop)
        self._to_release.callback(heap.close)
        opener = OpenerThread(ground.loop, heap)
        self._to_release.callback(opener.close)
        verifier = CoordinatorVerifier(ground.loop, parts)
        verifier.local = transactions
        transactions.markers.local = LocalMarkers(
            replicas=parts.replicas,
            groups=groups,
            durability=parts.durability,
            clock=parts.clock,
            scheduler=parts.scheduler,
            dynamic_config=parts.dynamic_config,
        )
        self._to_release.callback(verifier.close)
        services = make_services(
            parts,
            groups=groups,
            transactions=transactions,
            verifier=verifier,
            opener=opener,
            logs_made=member.roles.made,
        )
        dispatcher = Dispatcher(services, heap.much_was_freed)
        await bound.listeners.accept(dispatcher)
        bound.metrics.serve(_answering(Observed.of(ground.loop, parts, opened.store, bound.listeners, groups, member)))
        imports = BackgroundImports(ground.loop)
        self._to_release.callback(imports.close)
        imports.start()
        cleaner = Cleaner(parts, ground.files, ground.threads)
        is_stray = None if opened.adopts else _stray_judge(opened)
        housekeeping = Housekeeping(ground.loop, parts, ground.directory_threads, cleaner, is_stray=is_stray)
        housekeeping.look_after(bound.listeners, member, coordinators)
        return _Running(
            ground=ground,
            store=opened.store,
            parts=parts,
            services=services,
            member=member,
            coordinators=coordinators,
            listeners=bound,
            cleaner=cleaner,
            housekeeping=housekeeping,
            watchdog=self._watchdog(ground, dispatcher),
        )

    def _ground(self, loop: asyncio.AbstractEventLoop) -> _Ground:
        paths = self._config.data_directories
        ground = _Ground(
            loop=loop,
            files=self._files or RealFiles(loop.call_later),
            threads=ThreadPoolExecutor(WORK_THREADS, "moldau-work"),
            directory_threads=DirectoryThreads(paths),
            cold_reads=ReadThreads(paths),
        )
        self._to_release.callback(ground.cold_reads.shutdown)
        self._to_release.callback(ground.directory_threads.shutdown)
        self._to_release.callback(ground.threads.shutdown)
        return ground

    def _lock_directories(self, ground: _Ground, config_of: Callable[[str], TopicConfig]) -> LogManager:
        logs = LogManager(
            ground.files,
            self._clock,
            self._config.data_directories,
            config_of=config_of,
            new_uuid=lambda: os.urandom(16),
            on_offline=lambda path, failed: self._directory_failed(ground.loop, logs, path, failed),
            vital_topics=INTERNAL_TOPICS,
            ballast_bytes=self._config.long("log.dir.ballast.bytes"),
        )
        self._to_release.callback(_unlock, logs)
        self._check_directories(ground.files)
        logs.lock()
        self._check_directories(ground.files)  # again: nobody can change it any more
        return logs

    def _check_directories(self, files: Files) -> None:
        names = ("metadata.store.path", "zookeeper.connect")
        names_store = any(self._config.optional_string(name) for name in names)
        check_directories(self._config.data_directories, files, names_store=names_store)

    def _topic_config(self, opened: OpenedStore, topic: str) -> TopicConfig:
        known = opened.metadata.image.topics.get(topic)
        return TopicConfig.of(self._dynamic_config.now, known.configs if known is not None else {})

    async def _bind(self, ground: _Ground) -> _Bound:
        listeners = Listeners(ground.loop, lambda: self._dynamic_config.now, ground.cold_reads)
        self._to_release.callback(listeners.close)
        advertised = {listener.name: listener for listener in self._config.advertised_listeners}
        endpoints: list[Endpoint] = []
        addresses: list[str] = []
        for listener in self._config.listeners:
            port = await listeners.bind(listener)
            told = advertised.get(listener.name, listener)
            endpoint = Endpoint(listener.name, told.host or "localhost", told.port or port, listener.security)
            endpoints.append(endpoint)
            addresses.append(str(Listener(listener.name, listener.host or "localhost", port, listener.security)))
        metrics = MetricsListener(ground.loop)
        self._to_release.callback(metrics.close)
        if self._config.metrics_listener is not None:
            await metrics.bind(self._config.metrics_listener)
        return _Bound(listeners=listeners, endpoints=tuple(endpoints), addresses=addresses, metrics=metrics)

    def _parts(self, ground: _Ground, opened: OpenedStore, logs: LogManager) -> Parts:
        configs = opened.metadata.image.broker_configs
        self._dynamic_config.take(configs.get(WHOLE_CLUSTER, {}), configs.get(str(opened.broker_id), {}))
        policy = self._dynamic_config.now.string("log.flush.policy")
        engine = self._dynamic_config.now.string("log.flush.engine")
        engines = sync_engines(ground.loop, engine, self._config.data_directories, self._to_release)
        return make_parts(
            broker_id=opened.broker_id,
            dynamic_config=self._dynamic_config,
            clock=self._clock,
            scheduler=ground.loop,
            metadata=opened.metadata,
            replicas=Replicas(opened.metadata),
            logs=logs,
            durability=Durability(
                policy,
                committer(
                    ground.loop, ground.directory_threads.syncs, engines, engine_logs_min=engine_logs_min(engine)
                ),
            ),
            random=SystemRandom(),
        )

    async def _load_logs(self, ground: _Ground, opened: OpenedStore, logs: LogManager) -> None:
        # In a thread: after a crash much may have to be checked, and the loop has a session to keep alive.
        names = opened.metadata.image.topic_names_by_id
        await ground.loop.run_in_executor(ground.threads, logs.load, names)
        logs.belong_to_this_thread()
        if opened.store.session_state is SessionState.LOST:
            await opened.store.reconnect()
            await opened.metadata.reload()
        _sort_out(logs, opened)
        if not opened.adopts:
            logs.strays.note(self._clock.now_ms(), _stray_judge(opened))

    async def _join_cluster(
        self,
        ground: _Ground,
        opened: OpenedStore,
        parts: Parts,
        coordinators: Sequence[Coordinator[Any]],
        endpoints: tuple[Endpoint, ...],
    ) -> ClusterMember:
        member = ClusterMember(
            ground.loop,
            parts,
            opened.store,
            coordinators,
            BrokerInfo(opened.broker_id, self._config.optional_string("broker.rack"), endpoints),
            patience_s=self._patience_ms() / 1000,
            on_failed=self._fail,
        )
        await member.register()
        if opened.adopts:
            await adopt(opened.metadata, parts.logs, ground.files, opened.broker_id)
            _sort_out(parts.logs, opened)
        member.take_part()
        return member

    def _patience_ms(self) -> int:
        """A process that is gone is noticed at once on one machine, and only by its silence in an ensemble."""
        far_away = self._config.optional_string("zookeeper.connect")
        return TAKING_OVER_MS + (self._config.int("zookeeper.session.timeout.ms") if far_away else 0)

    def _watchdog(self, ground: _Ground, dispatcher: Dispatcher) -> Watchdog | None:
        if not self._config.bool("loop.watchdog.enable"):
            return None
        look_s = self._config.int("loop.watchdog.interval.ms") / 1000
        watchdog = Watchdog(ground.loop, dispatcher.request_at_work, look_s=look_s)
        watchdog.start()
        return watchdog

    # Failures

    def _directory_failed(
        self, loop: asyncio.AbstractEventLoop, logs: LogManager, path: str, failed: Sequence[Log]
    ) -> None:
        """A broker without a directory left has nothing to serve: whoever runs it stops it. May come from a thread."""
        partitions = [each.topic_partition for each in failed]
        loop.call_soon_threadsafe(self._partitions_failed, partitions)
        if all(directory.failure is not None for directory in logs.directories):
            loop.call_soon_threadsafe(self._fail, f"{path} failed and no data directory is left")

    def _partitions_failed(self, partitions: list[TopicPartition]) -> None:
        if self._is_running is not None:  # else the start is under way and sees for itself
            self._is_running.member.directory_failed(partitions)

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

    # The end

    async def stop(self) -> bool:
        """Let others lead, answer nobody any more, then leave the files so that the next start has nothing to check.

        False: it will have to check, as something could not be written.
        """
        running = self._running
        await running.member.hand_over()
        await self._end(running)
        is_clean = running.parts.logs.close(running.housekeeping.high_watermarks(), running.ground.threads)
        await self._to_release.aclose()
        return is_clean

    async def abort(self) -> None:
        """Leave everything as `kill -9` would: nothing is handed over, nothing noted. For tests."""
        await self._end(self._running)
        await self._to_release.aclose()

    async def _end(self, running: _Running) -> None:
        if running.watchdog is not None:
            running.watchdog.stop()
        running.housekeeping.stop()
        for coordinator in running.coordinators:
            coordinator.close()
        running.listeners.listeners.close()  # also at the release; here so that nobody is answered any more
        await running.member.close()
        await running.cleaner.stop()
        await running.ground.directory_threads.wait()


def _answering(observed: Observed) -> Callable[[Question], Coroutine[Any, Any, Page]]:
    """Pages of `metrics.listener`, which are imported with the first question."""
    pages: Pages | None = None

    async def answer(question: Question) -> Page:
        nonlocal pages
        if pages is None:
            from moldau.broker.metrics.pages import Pages

            pages = Pages(observed)
        return await pages.answer(question)

    return answer


def _unlock(logs: LogManager) -> None:
    for directory in logs.directories:
        directory.release()


def _stray_judge(opened: OpenedStore) -> Callable[[bytes | None, TopicPartition], bool]:
    return lambda topic_id, partition: is_still_stray(
        opened.metadata.image, topic_id, partition.partition, opened.broker_id
    )


def _sort_out(logs: LogManager, opened: OpenedStore) -> None:
    """Set logs aside of which it is proved that the cluster has no use for them: their topic was deleted or made anew,
    or has other replicas now. Without proof one is left alone."""
    for each in logs:
        reason = why_stray(opened.metadata.image, each, opened.broker_id)
        if reason is None or (opened.adopts and reason is StrayReason.TOPIC_GONE):
            continue
        if opened.adopts or not logs.was_ours(each.topic_partition):
            log.warning("%s is left alone: %s, and it is not proved that it may go", each.directory, reason.value)
            logs.leave_alone(each.topic_partition)
        else:
            log.warning("%s is a stray: %s; its directory is renamed", each.topic_partition, reason.value)
            logs.set_stray(each.topic_partition)
