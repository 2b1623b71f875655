"""Syncs of a follower before it tells its leader how far it is, under `log.flush.policy=group`.

Law: to ask for an offset is to say that all before it would survive a power cut here. So every in-sync replica has on
disk what acks=all has acknowledged, and after a power cut of all brokers any of them may lead, whoever led before.
Under `os` it is in the page cache, as with Apache Kafka.

The syncs run in the threads of the group commit, beside the leader's own. The next request waits for them, and then
names what they were for; but not longer than `SYNC_AWAITED_S`: a slow disk must not hold up partitions on another one.
While one takes longer than that, nobody waits for any; they are named when they are done.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from moldau.log.log import Log
from moldau.replication.durability import ACKS_ALL, Durability
from moldau.replication.fetch_plan import Fetch, FetchPlan

SYNC_AWAITED_S = 0.01

Syncing = asyncio.Future[frozenset[Log]]


class FollowerSyncs:
    """The syncs for what is fetched from one leader."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        durability: Durability,
        plan: FetchPlan,
        *,
        go_on: Callable[[], None],
        on_failed: Callable[[Fetch], None],
    ) -> None:
        """`go_on` is called when there may be something to send, `on_failed` when a log could not be synced."""
        self._loop = loop
        self._durability = durability
        self._plan = plan
        self._go_on = go_on
        self._on_failed = on_failed
        self._running: set[Syncing] = set()
        self._awaited: set[Syncing] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def are_awaited(self) -> bool:
        """Whether the next request should wait a little."""
        return bool(self._awaited)

    def begin(self) -> None:
        """Hold back what is due to be named and not on disk, and sync it. Nothing new costs no sync."""
        if not (self._plan.has_due and self._durability.is_synced(ACKS_ALL)):
            return
        unsynced: dict[str, list[Fetch]] = {}
        for fetch in self._plan.due:
            log = fetch.partition.log
            if log.recovery_point < log.log_end_offset:
                unsynced.setdefault(log.directory.rpartition("/")[0], []).append(fetch)
        for fetches in unsynced.values():  # one data directory does not wait for another
            self._sync(fetches)

    def close(self) -> None:
        self._running.clear()
        self._stop_waiting()

    def _sync(self, fetches: Sequence[Fetch]) -> None:
        syncing = self._durability.when_durable([fetch.partition.log for fetch in fetches], ACKS_ALL)
        if syncing is None:
            return
        for fetch in fetches:
            self._plan.hold_back(fetch)
        if len(self._running) == len(self._awaited):
            self._awaited.add(syncing)
            if self._timer is None:
                self._timer = self._loop.call_later(SYNC_AWAITED_S, self._time_is_up)
        self._running.add(syncing)
        syncing.add_done_callback(partial(self._synced, fetches))

    def _synced(self, fetches: Sequence[Fetch], syncing: Syncing) -> None:
        if syncing not in self._running or syncing.cancelled():
            return
        self._running.discard(syncing)
        self._awaited.discard(syncing)
        failed = syncing.result()
        for fetch in fetches:
            if fetch.partition.log not in failed:
                self._plan.let_go(fetch)
            elif self._plan.holds(fetch):
                self._on_failed(fetch)
        if not self._awaited:
            self._stop_waiting()
        self._go_on()

    def _time_is_up(self) -> None:
        self._stop_waiting()
        self._go_on()

    def _stop_waiting(self) -> None:
        self._awaited.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
