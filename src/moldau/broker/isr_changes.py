"""Brings what leaders wish for as in-sync replicas to the metadata store.

The law: a leader is told of a refusal only if the store has surely not taken the proposal and never will. A proposal
whose outcome is unknown is tried again: it expects the same version, so it can be taken once at most, and either way
the image, which is read again, shows what came of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from moldau.cluster.changes import StateChange
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import Conflict
from moldau.cluster.store import SessionLost, StoreUnavailable
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.replication.partition import Partition
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)

CHANGES_PER_WRITE_MAX = 100
RETRY_S = 0.5


class IsrProposals:
    """Gathers the proposals of a turn of the loop and writes them together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts) -> None:
        self._loop = loop
        self._parts = parts
        self._proposed: dict[Partition, None] = {}
        self._uncertain: set[Partition] = set()
        self._is_new_there = False
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_connected = True
        self._closed = False
        self.shrinks = 0
        self.expansions = 0
        self.failures = 0
        """Proposals that the store did not take."""

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        before = partition.in_sync_replicas
        change = "ISR shrunk" if len(isr) < len(before) else "ISR expanded"
        log.info("%s: %s from %s to %s (proposed)", partition.topic_partition, change, _ids(before), _ids(isr))
        self._proposed[partition] = None
        self._is_new_there = True
        self._start()

    def may_join(self, replica_id: int, broker_epoch: int, partition: Partition) -> bool:
        image = self._parts.metadata.image
        broker = image.brokers.get(replica_id)
        return (
            self._is_connected
            and broker is not None
            and broker.epoch == broker_epoch
            and image.may_lead(replica_id, *partition.topic_partition)
        )

    def check_lag(self) -> None:
        """Look for followers that have been behind for too long, and for those that could be let in."""
        parts = self._parts
        now_ms, lag_ms = parts.clock.monotonic_ms(), parts.config.long("replica.lag.time.max.ms")

        def look(partition: Partition) -> None:
            partition.check_lag(now_ms, lag_ms)
            partition.consider_joiners()

        self._with_each((each for each in parts.replicas.led() if each.followers), look)

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Look at the followers when brokers came: one may have fetched before we heard of it."""
        if old.brokers is not new.brokers and not self._closed:
            self._consider_joiners()

    def _consider_joiners(self) -> None:
        led = self._parts.replicas.led()
        outside = (each for each in led if len(each.maximal_isr) <= len(each.followers))
        self._with_each(outside, Partition.consider_joiners)

    def _with_each(self, partitions: Iterable[Partition], work: Callable[[Partition], None]) -> None:
        """Call `work` for each partition; the error of one keeps nobody from looking at the others."""
        for partition in partitions:
            try:
                work(partition)
            except InvariantError as error:
                partition.log.stop(error)
            except Exception:
                log.exception("%s: the ISR could not be checked", partition.topic_partition)

    def session_changed(self, connected: bool) -> None:
        """Take notice of the session: with a new one, pending proposals are tried at once, and followers may join
        again."""
        self._is_connected = connected
        if connected:
            self._start()
            self._consider_joiners()

    async def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _start(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._task is None and self._proposed and self._is_connected and not self._closed:
            self._task = self._loop.create_task(self._work())
            self._task.add_done_callback(self._worked)

    def _worked(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, SessionLost | StoreUnavailable):
            log.error("the ISR could not be changed; it is tried again", exc_info=error)
        if self._is_new_there and error is None:
            self._start()
        elif self._proposed and not self._closed:
            self._retry = self._loop.call_later(RETRY_S, self._start)

    async def _work(self) -> None:
        """Write what is proposed, each wish once; what is left then is tried again later."""
        seen: set[tuple[Partition, tuple[int, ...] | None]] = set()
        while fresh := [each for each in self._proposed if (each, each.pending_isr) not in seen]:
            self._is_new_there = False
            batch = [each for each in fresh if self._is_current(each)][:CHANGES_PER_WRITE_MAX]
            seen.update((each, each.pending_isr) for each in batch)
            batch = await self._of_the_same_topic(batch)
            for partition in [each for each in batch if not self._joiners_are_as_they_were(each)]:
                batch.remove(partition)
                await self._apart(self._withdraw, partition)
            try:
                await self._write(batch)
            except (SessionLost, StoreUnavailable):
                raise
            except Exception:  # a conflict, or one partition's error: each for itself, then
                for partition in batch:
                    await self._apart(self._write_one, partition)

    async def _apart(self, work: Callable[[Partition], Awaitable[None]], partition: Partition) -> None:
        """Do `work` for one partition, so that its failure does not keep the others' proposals from the store."""
        try:
            await work(partition)
        except (SessionLost, StoreUnavailable):
            raise
        except InvariantError as error:
            partition.log.stop(error)
            self._settled(partition)
        except Exception:
            log.exception("%s: the ISR could not be changed; it is tried again", partition.topic_partition)

    def _is_current(self, partition: Partition) -> bool:
        """Whether it still waits for an answer; if not, it is forgotten."""
        if partition.is_led and partition.pending_isr is not None:
            return True
        self._settled(partition)
        return False

    def _settled(self, partition: Partition) -> None:
        self._proposed.pop(partition, None)
        self._uncertain.discard(partition)

    async def _of_the_same_topic(self, batch: Sequence[Partition]) -> list[Partition]:
        """Partitions whose topic still exists: a new topic of the same name has versions from zero on, too."""
        names = {each.topic_partition.topic for each in batch}
        ids = await self._parts.metadata.topic_id_now(sorted(names)) if names else {}
        kept = []
        for partition in batch:
            if ids.get(partition.topic_partition.topic) == partition.topic_id:
                kept.append(partition)
            else:
                self._settled(partition)
        return kept

    async def _write(self, batch: Sequence[Partition]) -> None:
        wished = {each: each.pending_isr for each in batch if self._is_current(each)}
        changes = [change for each, isr in wished.items() if (change := self._change(each, isr)) is not None]
        if changes:
            sizes = {each.topic_partition: len(each.in_sync_replicas) for each in wished}
            await self._send(wished, changes, _joiners(wished))
            shrinks = sum(len(each.state.isr) < sizes[TopicPartition(each.topic, each.index)] for each in changes)
            self.shrinks += shrinks
            self.expansions += len(changes) - shrinks
        for partition, isr in wished.items():
            self._answered(partition, isr)

    def _answered(self, partition: Partition, wished: tuple[int, ...] | None) -> None:
        """The image shows what came of it, and the leader knows. It may wish for something new already."""
        if partition.pending_isr is None:
            self._settled(partition)
        elif partition.pending_isr is not wished:
            self._uncertain.discard(partition)

    async def _send(
        self, partitions: Iterable[Partition], changes: Sequence[StateChange], starts: Mapping[int, int]
    ) -> None:
        try:
            await self._parts.metadata.write(changes, starts=starts)
        except Conflict:
            raise
        except BaseException:
            self._uncertain.update(partitions)
            raise

    async def _write_one(self, partition: Partition) -> None:
        wished = partition.pending_isr
        try:
            await self._write([partition])
        except Conflict:
            if partition.pending_isr is wished:
                await self._withdraw(partition)

    def _joiners_are_as_they_were(self, partition: Partition) -> bool:
        """A broker that was started anew since may have lost what it had when it was let in; one that a reassignment
        has taken out since is no replica any more."""
        joiners = [each for each in partition.pending_isr or () if each not in partition.in_sync_replicas]
        return all(
            each in partition.replicas and self.may_join(each, partition.followers[each].broker_epoch, partition)
            for each in joiners
        )

    async def _withdraw(self, partition: Partition) -> None:
        wished = partition.pending_isr
        self.failures += 1
        if partition not in self._uncertain:
            partition.proposal_refused()
        else:
            await self._fence(partition)
        self._answered(partition, wished)

    async def _fence(self, partition: Partition) -> None:
        """An earlier attempt may still be under way: raise the version that it expects, then it can never be taken."""
        change = self._change(partition, partition.in_sync_replicas)
        if change is not None:
            with suppress(Conflict):  # somebody else has raised it
                await self._send([partition], [change], {})

    def _change(self, partition: Partition, isr: tuple[int, ...] | None) -> StateChange | None:
        """None: the image is ahead of the partition, which hears of it in a moment."""
        topic, index = partition.topic_partition
        image = self._parts.metadata.image.topics.get(topic)
        if image is None or image.topic_id != partition.topic_id or isr is None:
            return None
        state = image.partitions[index]
        if (state.leader_epoch, state.partition_epoch) != (partition.leader_epoch, partition.partition_epoch):
            return None
        return StateChange(topic, image.topic_id, index, state._replace(isr=isr))


def _ids(replicas: Iterable[int]) -> str:
    """Replica ids as Kafka prints them: 1,2."""
    return ",".join(map(str, replicas))


def _joiners(wished: Mapping[Partition, tuple[int, ...] | None]) -> dict[int, int]:
    """Brokers that join an ISR, with the broker epoch in which they had all records: the write is valid only if they
    are registered with this epoch, and have not been started anew."""
    return {
        each: partition.followers[each].broker_epoch
        for partition, isr in wished.items()
        for each in isr or ()
        if each not in partition.in_sync_replicas
    }
