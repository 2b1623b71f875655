"""The controller: one of the brokers, which keeps the partitions as they should be while brokers come and go.

Law: it holds no state of its own. Whenever the image changes it looks at what has changed since everything was well
(`cluster/controller.py` says what should be) and writes, until there is nothing left to write. Every write is guarded
by the controller's epoch and by the versions it was planned from: a controller that was stopped and wakes up after
another took over changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from moldau.broker import state_changes
from moldau.broker.admin_requests import AdminServing
from moldau.cluster.changes import CHANGES_PER_MULTI_MAX, Change, StateChange, leaders_are_alive, new_leaders
from moldau.cluster.controller import reconcile, rewritten
from moldau.cluster.elections import imbalanced
from moldau.cluster.image import NO_LEADER, NO_TOPIC_ID, BrokerInfo, ClusterImage, TopicImage
from moldau.cluster.metadata import Conflict
from moldau.cluster.store import SessionLost, StoreError, StoreUnavailable
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

CONFLICTS_BEFORE_SMALLER_BATCHES = 3
RETRY_SECONDS = 0.5
UNCLEAN = "unclean.leader.election.enable"
CONTROLLER_WRITES_MAX = 1000
"""Writes in a row after which the controller pauses: if it wants still more, it wants the same change again and
again."""


class Controller:
    """Controller of the cluster on this broker, or its wait to become it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts) -> None:
        self._loop = loop
        self._parts = parts
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_due = False
        self._is_rebalance_due = False
        self._is_registered = False
        self._is_closed = False
        self._epoch = -1
        self._well = _Seen()
        self._hopeless: frozenset[str] = frozenset()
        self._admin = AdminServing(parts.metadata, parts.dynamic_config)
        self.writes = 0
        self.changes_written = 0
        self.writing_s = 0.0
        self.unclean_elections = 0
        """Leaders that this controller chose though they were not in sync."""
        self._unwatch: Callable[[], None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        image = self._parts.metadata.image
        return image.controller_id == self._parts.broker_id and image.controller_epoch == self._epoch

    def image_changed(self, _old: ClusterImage, new: ClusterImage) -> None:
        """Look at what should change now: once, however many images come in this turn of the loop."""
        if new.controller_id in (NO_LEADER, self._parts.broker_id):
            self._look()

    def registered(self) -> None:
        """The broker is alive: it may be the controller."""
        self._is_registered = True
        if self._unwatch is None:
            self._unwatch = self._parts.metadata.admin.watch(lambda _path: self._asked())
        self._look()

    def _asked(self) -> None:
        self._admin.changed()
        if self.is_active:
            self._look()

    def session_lost(self) -> None:
        """Stop being the controller: another broker may be it by now."""
        self._is_registered = False
        self._epoch = -1

    def rebalance(self) -> None:
        """Give leadership back to the preferred replicas, where too much of it is elsewhere."""
        if self.is_active:
            self._is_rebalance_due = True
            self._look()

    async def close(self) -> None:
        """Let another broker be the controller at once."""
        self._is_closed = True
        if self._unwatch is not None:
            self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._is_registered and self.is_active:
            try:
                await self._parts.metadata.resign_controller()
            except StoreError as error:
                log.warning("the controller could not resign and leaves with its session: %s", error)

    def _look(self) -> None:
        self._is_due = True
        if self._task is None and self._is_registered and not self._is_closed:
            self._task = self._loop.create_task(self._run())

    def _look_later(self) -> None:
        if self._retry is None and not self._is_closed:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._retry = None
        self._look()

    async def _run(self) -> None:
        try:
            while self._is_due and self._is_registered and not self._is_closed:
                self._is_due = False
                await self._act()
        except SessionLost:
            log.info("the session was lost in the middle of a change; the next controller looks at it again")
        except StoreUnavailable as error:
            log.warning("the metadata store did not answer (%s); the controller tries again", error)
            self._look_later()
        except Exception:
            log.exception("the controller failed; it tries again")
            self._look_later()
        finally:
            self._task = None

    async def _act(self) -> None:
        if not self.is_active:
            await self._claim()
        if self.is_active:
            await self._restore_topics()
            await self._make_well()
        if self.is_active and not await self._admin.serve():
            self._look_later()
        if self.is_active and self._is_rebalance_due:
            self._is_rebalance_due = False
            await self._rebalance()

    async def _claim(self) -> None:
        """Become the controller where there is none, or where an earlier claim of ours was not answered."""
        metadata, broker_id = self._parts.metadata, self._parts.broker_id
        own = metadata.image.brokers.get(broker_id)
        if metadata.image.controller_id not in (NO_LEADER, broker_id) or own is None or own.shutting_down:
            return
        if await metadata.claim_controller(broker_id):
            self._epoch = metadata.image.controller_epoch
            self._well = _Seen()
            self._hopeless = frozenset()
            self._admin.changed()
            await metadata.keep_topics()
            log.info("this broker is the controller, epoch %d", self._epoch)

    async def _restore_topics(self) -> None:
        """Write the nodes of topics again that nobody understands. One that cannot be restored is tried once."""
        metadata = self._parts.metadata
        self._hopeless &= metadata.image.unreadable_topics
        for name in sorted(metadata.image.unreadable_topics - self._hopeless):
            if not await metadata.restorer.topic(name, metadata.controller_guard()):
                self._hopeless |= {name}
        if metadata.image.unreadable_topics - self._hopeless:  # overwritten again meanwhile
            self._look_later()

    async def _make_well(self) -> None:
        """Write what should be different, until nothing is."""
        metadata, batch_max, conflicts = self._parts.metadata, CHANGES_PER_MULTI_MAX, 0
        for _write in range(CONTROLLER_WRITES_MAX):
            image = metadata.image
            topics = list(self._well.changed(image))
            nameless = [topic for topic in topics if topic.lacks_id or topic.topic_id == NO_TOPIC_ID]
            changes = reconcile(image, topics, self._is_unclean)
            changes += rewritten(image, changes)
            if not changes and not nameless:
                self._well = _Seen(image.brokers, image.topics, image.broker_configs)
                return
            try:
                if nameless:
                    await metadata.give_topic_id(nameless[0])
                else:
                    await self._write(image, changes[:batch_max])
                conflicts = 0
            except Conflict:
                conflicts += 1
                if conflicts >= CONFLICTS_BEFORE_SMALLER_BATCHES:
                    batch_max = max(1, batch_max // 2)
            if not self.is_active or self._is_closed:
                return
        log.error("the controller has written %d times in a row and still wants a change", CONTROLLER_WRITES_MAX)
        self._look_later()

    async def _rebalance(self) -> None:
        image = self._parts.metadata.image
        changes = imbalanced(image, self._parts.config.int("leader.imbalance.per.broker.percentage"))
        try:
            for start in range(0, len(changes), CHANGES_PER_MULTI_MAX):
                await self._write(image, changes[start : start + CHANGES_PER_MULTI_MAX])
        except Conflict:
            log.info("leaders changed while they were being rebalanced; the rest is left for the next time")

    async def _write(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        metadata, began = self._parts.metadata, self._loop.time()
        await metadata.write(changes, [metadata.controller_guard(), *leaders_are_alive(image, changes)])
        self.writes += 1
        self.changes_written += len(changes)
        self.writing_s += self._loop.time() - began
        state_changes.decided(self._parts.broker_id, self._epoch, changes)
        self.unclean_elections += sum(_is_unclean_election(image, change) for change in changes)
        log.info("%s", _summary(image, changes))

    def _is_unclean(self, topic: TopicImage) -> bool:
        own = topic.configs.get(UNCLEAN)  # without making a TopicConfig: this is asked of every topic at a failover
        return self._parts.config.bool(UNCLEAN) if own is None else own.strip().lower() == "true"


class _Seen:
    """Cluster as it was when nothing had to be changed."""

    def __init__(
        self,
        brokers: Mapping[int, BrokerInfo] | None = None,
        topics: Mapping[str, TopicImage] | None = None,
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._brokers = brokers
        self._topics = topics or {}
        self._configs = configs

    def changed(self, image: ClusterImage) -> Iterable[TopicImage]:
        """The topics that may have to change since: all of them, if brokers came or went."""
        if image.brokers is not self._brokers or image.broker_configs is not self._configs:
            return image.topics.values()
        if image.topics is self._topics:
            return ()
        return [topic for name, topic in image.topics.items() if self._topics.get(name) is not topic]


def _is_unclean_election(image: ClusterImage, change: Change) -> bool:
    if not isinstance(change, StateChange) or change.state.leader == NO_LEADER:
        return False
    before = image.partition(change.topic, change.index)
    return before is not None and bool(before.isr) and change.state.leader not in before.isr


def _summary(image: ClusterImage, changes: Sequence[Change]) -> str:
    leaders = new_leaders(image, changes)
    without = leaders.count(NO_LEADER)
    alive = ", ".join(map(str, sorted(image.brokers)))
    return (
        f"brokers {alive} are alive: {len(leaders) - without} new leaders, {without} partitions without, "
        f"{len(changes)} changes"
    )
