"""The sampler: one task looks at the cluster every few seconds, and all pages show what it saw.

However many people look, the cluster is asked once. A look that takes long makes the next one come later, so that the
console never uses more than a quarter of one core's time for it. Histories are bounded: an hour, and only for topics
and groups that are there.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from moldau.console.cluster.clients import Clients
from moldau.console.cluster.collect import Collector, Look, is_internal
from moldau.console.cluster.groups import GroupFacts
from moldau.console.cluster.history import KEPT_S, Ends, Series
from moldau.console.cluster.state import (
    BAD_RULES,
    NOT_KNOWN_YET,
    NOTHING,
    GroupLag,
    GroupState,
    PartitionState,
    Place,
    Snapshot,
    TopicState,
)
from moldau.console.failures import ConsoleError
from moldau.core.group_status import Window

log = logging.getLogger("moldau.console")

PAUSE_FACTOR = 3
LOOK_S_MAX = 60.0
RECORDS_IN, BYTES_IN, BYTES_OUT = "records in", "bytes in", "bytes out"
Clock = Callable[[], float]
_NO_PARTITION = PartitionState(0, -1, (), ())


class Memory:
    """Memory of looks, as series; makes a snapshot of each look."""

    def __init__(self) -> None:
        self.totals = {name: Series() for name in (RECORDS_IN, BYTES_IN, BYTES_OUT)}
        self.topic_rates: dict[str, Series] = {}
        """Records in a second, by topic."""
        self.group_lags: dict[str, Series] = {}
        self.group_seconds: dict[str, Series] = {}
        self._ends: dict[Place, Ends] = {}
        self._windows: dict[tuple[str, Place], Window] = {}
        self._commits: dict[tuple[str, Place], tuple[int, int]] = {}
        """Committed offset, and when it was seen first."""
        self._brokers: dict[int, float] = {}
        """Brokers, and when each was seen last."""
        self._before: Snapshot | None = None

    def take(self, look: Look, now_ms: int, took_s: float) -> Snapshot:
        now_s = now_ms / 1000
        topics = {
            name: TopicState(name, is_internal(name), tuple(partitions))
            for name, partitions in sorted(look.topics.items())
        }
        partitions = {(name, each.id): each for name, topic in topics.items() for each in topic.partitions}
        self._take_ends(partitions, now_s)
        groups = {
            name: self._group(name, facts, partitions, look, now_ms) for name, facts in sorted(look.groups.items())
        }
        seen = {**self._brokers, **dict.fromkeys(look.brokers, now_s)}
        self._brokers = {number: at_s for number, at_s in seen.items() if now_s - at_s < KEPT_S}
        named = {number for each in partitions.values() for number in each.replicas}
        missing = (named | self._brokers.keys()) - look.brokers.keys()
        snapshot = Snapshot(
            now_ms,
            look.cluster_id,
            look.controller,
            dict(sorted(look.brokers.items())),
            tuple(sorted(missing)),
            topics,
            groups,
            look.traffic,
            took_s,
            look.complaints,
        )
        self._take_rates(snapshot, now_s)
        self._take_groups(snapshot, now_s)
        self._before = snapshot
        return snapshot

    def _take_ends(self, partitions: Mapping[Place, PartitionState], now_s: float) -> None:
        for place, each in partitions.items():
            if each.end is not None:
                self._ends.setdefault(place, Ends()).saw(now_s, each.end)
        for place in self._ends.keys() - partitions.keys():
            del self._ends[place]

    def _take_rates(self, snapshot: Snapshot, now_s: float) -> None:
        before = self._before
        for gone in self.topic_rates.keys() - snapshot.topics.keys():
            del self.topic_rates[gone]
        if before is None or snapshot.at_ms <= before.at_ms:
            return
        elapsed_s = (snapshot.at_ms - before.at_ms) / 1000
        total = 0.0
        for name, topic in snapshot.topics.items():
            earlier = before.topics.get(name)
            if earlier is None or any(each.end is None for each in (*topic.partitions, *earlier.partitions)):
                continue
            rate = max(0, topic.end_sum - earlier.end_sum) / elapsed_s
            self.topic_rates.setdefault(name, Series()).add(now_s, rate)
            total += 0.0 if topic.is_internal else rate
        self.totals[RECORDS_IN].add(now_s, total)
        if snapshot.traffic.brokers and snapshot.traffic.brokers == before.traffic.brokers:
            for name, now, then in (
                (BYTES_IN, snapshot.traffic.bytes_in, before.traffic.bytes_in),
                (BYTES_OUT, snapshot.traffic.bytes_out, before.traffic.bytes_out),
            ):
                self.totals[name].add(now_s, max(0.0, now.get("", 0.0) - then.get("", 0.0)) / elapsed_s)

    def _take_groups(self, snapshot: Snapshot, now_s: float) -> None:
        for series in (self.group_lags, self.group_seconds):
            for gone in series.keys() - snapshot.groups.keys():
                del series[gone]
        for name, group in snapshot.groups.items():
            self.group_lags.setdefault(name, Series()).add(now_s, group.lag)
            if group.seconds is not None:
                self.group_seconds.setdefault(name, Series()).add(now_s, group.seconds)
        known = {(name, place) for name, group in snapshot.groups.items() for place in group.lags}
        for gone_key in self._windows.keys() - known:
            del self._windows[gone_key]
            self._commits.pop(gone_key, None)

    def _group(
        self, name: str, facts: GroupFacts, partitions: Mapping[Place, PartitionState], look: Look, now_ms: int
    ) -> GroupState:
        places = dict(facts.committed)
        for member in facts.members:
            for place in member.assignment:
                places.setdefault(place, None)
        lags = {
            place: self._lag(name, place, committed, partitions.get(place, _NO_PARTITION), look, now_ms)
            for place, committed in sorted(places.items())
        }
        return GroupState(name, facts.state, facts.kind, facts.assignor, facts.coordinator, facts.members, lags)

    def _lag(
        self, group: str, place: Place, committed: int | None, partition: PartitionState, look: Look, now_ms: int
    ) -> GroupLag:
        if committed is None or partition.end is None:
            return GroupLag(committed, None, None, False, "ok")
        lag = max(0, partition.end - max(committed, partition.start or 0))
        key = (group, place)
        offset, seen_ms = self._commits.get(key, (-1, 0))
        if offset != committed:
            seen_ms = now_ms
            self._commits[key] = (committed, now_ms)
        window = self._windows.setdefault(key, Window())
        window.saw(committed, seen_ms, lag)
        exact = look.traffic.lag_seconds.get((group, *place))
        seconds: float | None = 0.0 if lag == 0 else exact
        if seconds is None and place in self._ends:
            seconds = self._ends[place].age_s(committed, now_ms / 1000)
        rule = _rule(window, now_ms, look.traffic.rules.get((group, *place)), exact is not None)
        return GroupLag(committed, lag, seconds, exact is not None or lag == 0, rule)


def _rule(window: Window, now_ms: int, told: str | None, is_told: bool) -> str:
    """The worse of the rule that the coordinator tells and of what was seen here: commits are dated by the look that
    saw them, so that after a start all seem to be new. `is_told`: the coordinator would have told a rule."""
    seen = window.rule(now_ms).name.lower()
    found = next((rule for rule in BAD_RULES if rule in (seen, told)), None)
    if found is not None:
        return found
    is_new = len(window.commits) == 1 and 0 not in window.lags
    return NOT_KNOWN_YET if is_new and not is_told else "ok"


class Sampler:
    """Looks again and again, and keeps the newest snapshot."""

    def __init__(self, clients: Clients, clock: Clock = time.time) -> None:
        self._clients = clients
        self._collector = Collector(clients)
        self._clock = clock
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.memory = Memory()
        self.snapshot = NOTHING
        self.failure: str | None = None
        """Reason why the last look failed; None: it did not."""
        self.seen = asyncio.Condition()
        """Notified after each look."""

    async def start(self) -> None:
        """Look once, then go on in a task."""
        await self.refresh()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            # a look that waited for somebody who is away has cost no CPU
            cost_s = 0.0 if self.snapshot.complaints else self.snapshot.took_s
            await asyncio.sleep(max(self._clients.settings.sample_s, PAUSE_FACTOR * cost_s))
            await self.refresh()

    async def refresh(self) -> None:
        """Look now; a look that was under way before is not enough, as it may have missed the newest change."""
        async with self._looking:
            begun = time.monotonic()
            try:
                look = await self._clients.run(self._collector.look, LOOK_S_MAX)
                took_s = time.monotonic() - begun
                self.snapshot = self.memory.take(look, int(self._clock() * 1000), took_s)
                self.failure = None
            except ConsoleError as error:
                if self.failure is None:
                    log.warning("the cluster does not answer: %s", error)
                self.failure = str(error)
            except Exception as error:  # an answer that nobody expected: the next one may be another
                log.exception("the cluster's answers cannot be read")
                self.failure = f"its answers cannot be read ({type(error).__name__}: {error})"
        async with self.seen:
            self.seen.notify_all()
