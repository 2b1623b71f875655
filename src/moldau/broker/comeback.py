"""Report of a broker that comes back about its logs, before anybody can see it alive.

Law: nobody is elected that may lack what acks=all had acknowledged. So who has no log any more where the cluster
counts it in sync, because a disk was replaced, leaves the in-sync replicas before it registers; so does who has a log
that ends below its high watermark, because a disk forgot. Where a replaced disk was the only one of several replicas in
sync, an empty log must not win the election: the partition is offline here, in all its starts, until another replica is
elected, which may lose records and is therefore up to the operator.

What was never on disk does not count: a new topic's directory that a power cut took had nothing acknowledged in it
(`follower_syncs`, `Log.sync`), and is made anew.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence

from moldau.broker.registration import Registration
from moldau.broker.roles import Roles
from moldau.cluster.changes import CHANGES_PER_MULTI_MAX, Change, StateChange
from moldau.cluster.controller import plan_return
from moldau.cluster.image import NO_TOPIC_ID, ClusterImage, TopicImage
from moldau.cluster.metadata import Conflict
from moldau.cluster.restorer import Claim
from moldau.cluster.store import StoreError
from moldau.cluster.znodes import LogEnd
from moldau.core.ids import TopicPartition
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

NAMES_IN_A_LINE_MAX = 20
NO_LOG = LogEnd(-1, 0)


class Comeback:
    """Withdraws, and watches over the partitions that wait for a decision."""

    def __init__(self, parts: Parts, registration: Registration, roles: Roles) -> None:
        self._parts = parts
        self._registration = registration
        self._roles = roles
        self._undecided: dict[TopicPartition, bytes] = {}  # with the id of their topic
        self._tasks: set[asyncio.Task[None]] = set()

    async def withdraw(self) -> None:
        """Leave the in-sync replicas where logs may have lost something."""
        logs, metadata, broker_id = self._parts.logs, self._parts.metadata, self._parts.broker_id
        if logs.was_clean and not self._lost() and not logs.cut_short:
            return
        if await self._registration.wait_until_free():
            await metadata.reload()  # until then a leader could let us in as we were before
        lost = self._lost()
        done: set[tuple[str, int]] = set()
        while changes := _left_to_do(
            plan_return(metadata.image, broker_id, unclean=not logs.was_clean, lost=lost | logs.cut_short), done
        ):
            try:
                await metadata.write(changes)
            except Conflict:
                continue
            done.update((change.topic, change.index) for change in changes)
        if done:
            log.info("was not stopped cleanly: %d partitions are told so", len(done))
        if lost:
            await self._face_the_loss(lost)

    async def claim(self) -> None:
        """Say where our logs end, for partitions whose state nobody knows. Of a log that may come back with its disk
        nothing is said: its partition waits."""
        logs, metadata, broker_id = self._parts.logs, self._parts.metadata, self._parts.broker_id
        for topic in list(metadata.image.topics.values()):
            for index, state in enumerate(topic.partitions):
                if state.leader_epoch >= 0 or broker_id not in state.replicas:
                    continue
                found = logs.get(TopicPartition(topic.name, index))
                is_new = state.partition_epoch < 0 and (found is None or not found.log_end_offset)
                if is_new or not self._is_told_by_disk(TopicPartition(topic.name, index)):
                    continue
                end = LogEnd(found.leader_epochs.latest, found.log_end_offset) if found else NO_LOG
                await metadata.restorer.claim(Claim(topic.name, index, state.replicas, broker_id, end))

    async def _claim_now(self) -> None:
        try:
            await self.claim()
        except StoreError as error:
            log.warning("log end offsets could not be reported; they are reported at the next start: %s", error)

    def registered(self) -> None:
        """The cluster knows what is missing here. Before the roles are taken up."""
        if self._undecided:
            self._roles.directory_failed(sorted(self._undecided))
        else:
            self._parts.logs.directories_are_known()

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take up what has been decided, and say what nobody knows. After the roles have been."""
        if new.topics is not old.topics and any(_has_unknown(topic) for topic in _changed(old, new)):
            self._start(self._claim_now())
        if not self._undecided:
            return
        decided = [name for name, topic_id in self._undecided.items() if self._is_decided(new, name, topic_id)]
        if decided:
            for name in decided:
                del self._undecided[name]
            log.info("another replica was elected, or none is left; online here again: %s", _some(decided))
            self._start(self._registration.mark_online(decided))
            self._roles.back_online(new, decided)
            if not self._undecided:
                self._parts.logs.directories_are_known()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _is_told_by_disk(self, name: TopicPartition) -> bool:
        """Whether what is found of a partition, or that nothing is, is all that there was."""
        logs = self._parts.logs
        found = logs.get(name)
        if found is not None:
            return found.failure is None and name not in logs.cut_short
        is_complete = all(each.failure is None for each in logs.directories) and not logs.new_directories
        return is_complete and name not in self._had_records()

    def _lost(self) -> frozenset[TopicPartition]:
        """The partitions that we have nothing of, though the cluster counts us in sync and there was something."""
        logs, image = self._parts.logs, self._parts.metadata.image
        missing = frozenset(
            name
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._parts.broker_id in state.isr and logs.get(name := TopicPartition(topic.name, index)) is None
        )
        return missing if logs.new_directories or not missing else missing & self._had_records()

    def _had_records(self) -> frozenset[TopicPartition]:
        """The partitions that the checkpoints of our directories know, whether their logs are there or not."""
        readable = [each for each in self._parts.logs.directories if each.failure is None]
        marks = [mark for directory in readable for mark in directory.high_watermarks.read().items()]
        return frozenset(name for name, high_watermark in marks if high_watermark > 0)

    async def _face_the_loss(self, lost: frozenset[TopicPartition]) -> None:
        logs, image, broker_id = self._parts.logs, self._parts.metadata.image, self._parts.broker_id
        log.warning("the logs of %d partitions are gone; new directories: %s", len(lost), logs.new_directories)
        only = [name for name in sorted(lost) if (state := image.partition(*name)) and state.isr == (broker_id,)]
        alone = [name for name in only if not self._has_other_replicas(image, name)]
        if alone:
            log.error("this broker had the only replica of these partitions, and they are empty now: %s", _some(alone))
        waiting = [name for name in only if name not in alone] if logs.new_directories else []
        if waiting:
            log.error(
                "this broker was the only in-sync replica of these partitions and has nothing of them any more: they "
                "are offline until its old disk is back, or until another replica is elected with what it has "
                "(kafka-leader-election --election-type unclean): %s",
                _some(waiting),
            )
            self._undecided = {name: image.topics[name.topic].topic_id for name in waiting}
            await self._registration.mark_offline(waiting)

    def _has_other_replicas(self, image: ClusterImage, name: TopicPartition) -> bool:
        state = image.partition(*name)
        return state is not None and len(state.replicas) > 1

    def _is_decided(self, image: ClusterImage, name: TopicPartition, topic_id: bytes) -> bool:
        """Somebody else is in sync, or there is nobody else any more, or it is deleted."""
        topic, state = image.topics.get(name.topic), image.partition(*name)
        if topic is None or topic_id not in (topic.topic_id, NO_TOPIC_ID) or state is None:
            return True
        return self._parts.broker_id not in state.isr or not self._has_other_replicas(image, name)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _changed(old: ClusterImage, new: ClusterImage) -> Iterator[TopicImage]:
    return (topic for name, topic in new.topics.items() if old.topics.get(name) is not topic)


def _has_unknown(topic: TopicImage) -> bool:
    """Whether a partition has a state that nobody understands."""
    return any(state.leader_epoch < 0 <= state.partition_epoch for state in topic.partitions)


def _left_to_do(planned: list[Change], done: set[tuple[str, int]]) -> list[StateChange]:
    states = [change for change in planned if isinstance(change, StateChange)]
    return [each for each in states if (each.topic, each.index) not in done][:CHANGES_PER_MULTI_MAX]


def _some(names: Sequence[TopicPartition]) -> str:
    more = len(names) - NAMES_IN_A_LINE_MAX
    return ", ".join(map(str, names[:NAMES_IN_A_LINE_MAX])) + (f" and {more} more" if more > 0 else "")
