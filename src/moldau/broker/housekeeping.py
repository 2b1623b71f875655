"""Periodic work of a broker: retention, checkpoints, syncs, cleaning, and looks at its neighbours."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from moldau.broker.cleaner import Cleaner
from moldau.broker.cluster_member import ClusterMember
from moldau.broker.coordinator import Coordinator
from moldau.broker.directory_threads import DirectoryThreads
from moldau.broker.listeners import Listeners
from moldau.broker.tasks import Periodic
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ApiError
from moldau.requests.parts import Parts

IDLE_CHECK_MS_MAX = 10_000
INTERVAL_MS_MAX = 86_400_000
ROOM_CHECK_MS = 1_000

IsStray = Callable[[bytes | None, TopicPartition], bool]


class Housekeeping:
    """Begins when it is made, and ends with `stop`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        parts: Parts,
        directory_threads: DirectoryThreads,
        cleaner: Cleaner,
        *,
        is_stray: IsStray | None,
    ) -> None:
        """`is_stray` says which directories may be removed in time; None: nobody can say, so none is."""
        self._loop = loop
        self._parts = parts
        self._directory_threads = directory_threads
        self._is_stray = is_stray
        self._tasks: list[Periodic] = []
        self._every(self._configured("log.retention.check.interval.ms"), self._apply_retention)
        self._every(self._configured("producer.id.expiration.check.interval.ms"), self._expire_producers)
        self._every(self._configured("log.flush.offset.checkpoint.interval.ms"), self._checkpoint)
        self._every(self._configured("replica.high.watermark.checkpoint.interval.ms"), self._checkpoint_marks)
        self._every(self._configured("log.flush.scheduler.interval.ms"), self._flush_due)
        self._every(self._configured("log.cleaner.backoff.ms"), cleaner.look)
        self._every(lambda: ROOM_CHECK_MS, self._look_for_room)

    def look_after(self, listeners: Listeners, member: ClusterMember, coordinators: Iterable[Coordinator[Any]]) -> None:
        """See to connections, to the cluster and to what is coordinated, too."""
        self._every(self._idle_check_ms, listeners.close_idle)
        self._every(self._lag_check_ms, member.isr_changes.check_lag)
        for coordinator in coordinators:
            self.clean_up_for(coordinator)
        if self._parts.config.bool("auto.leader.rebalance.enable"):
            self._every(self._rebalance_ms, member.controller.rebalance)

    def clean_up_for(self, coordinator: Coordinator[Any]) -> None:
        """Let a coordinator do its background work."""

        def interval_ms() -> int:
            return max(1, min(INTERVAL_MS_MAX, coordinator.settings().clean_up_interval_ms))

        self._every(interval_ms, coordinator.clean_up)

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.topic_partition: partition.high_watermark for partition in self._parts.replicas}

    # Intervals

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        self._tasks.append(Periodic(self._loop, interval_ms, work))

    def _configured(self, name: str) -> Callable[[], int]:
        return lambda: max(1, min(INTERVAL_MS_MAX, self._parts.config.long(name)))

    def _idle_check_ms(self) -> int:
        idle_ms = self._parts.config.long("connections.max.idle.ms")
        return min(IDLE_CHECK_MS_MAX, idle_ms // 2) if idle_ms > 1 else IDLE_CHECK_MS_MAX

    def _lag_check_ms(self) -> int:
        return max(1, self._parts.config.long("replica.lag.time.max.ms") // 2)

    def _rebalance_ms(self) -> int:
        return min(INTERVAL_MS_MAX, 1000 * self._parts.config.long("leader.imbalance.check.interval.seconds"))

    # Logs

    def _apply_retention(self) -> None:
        logs, now_ms = self._parts.logs, self._parts.clock.now_ms()
        for each in logs:
            with contextlib.suppress(ApiError):  # it is tried again at the next interval, or offline and has said so
                each.roll_if_due(now_ms)
        marks = self.high_watermarks()
        logs.delete_expired(lambda partition: marks.get(partition, 0))
        stray_ms, is_stray = self._parts.config.long("log.stray.retention.ms"), self._is_stray

        def remove(path: str) -> None:
            logs.remove_doomed(path)
            if stray_ms >= 0 and is_stray is not None:
                logs.remove_strays(stray_ms, is_stray, path)

        self._directory_threads.in_each("remove", remove)

    def _expire_producers(self) -> None:
        self._parts.logs.expire_producers(self._parts.config.int("producer.id.expiration.ms"))

    def _look_for_room(self) -> None:
        """Apply retention at once while a disk is full, and look whether there is room again."""
        if self._parts.logs.is_full:
            self._apply_retention()
        self._directory_threads.in_each("room", self._parts.logs.look_for_room)

    def _checkpoint(self) -> None:
        logs, marks = self._parts.logs, self.high_watermarks()

        def work(path: str) -> None:
            logs.sync_sealed(path)
            logs.checkpoint(marks, path)

        self._directory_threads.in_each("checkpoint", work)

    def _checkpoint_marks(self) -> None:
        logs, marks = self._parts.logs, self.high_watermarks()
        self._directory_threads.in_each("high watermarks", lambda path: logs.checkpoint_high_watermarks(marks, path))

    def _flush_due(self) -> None:
        """`flush.ms`: sync what was appended longer ago than that."""
        self._directory_threads.in_each("flush", self._parts.logs.sync_all)
