"""The parts of a broker that make it one of several, in the order in which they begin and end.

Law: a broker that did not close its logs, or has some of them no more, takes itself out of the in-sync replicas before
anybody can see it alive: an election must not count on what may be gone (KIP-841, KIP-903; `returning`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from moldau.broker.comeback import Comeback
from moldau.broker.controller import Controller
from moldau.broker.coordinator import Coordinator
from moldau.broker.fetchers import Fetchers
from moldau.broker.isr_changes import IsrProposals
from moldau.broker.registration import Registration
from moldau.broker.roles import Roles
from moldau.broker.shutdown import hand_over
from moldau.cluster.image import NO_LEADER, BrokerInfo, ClusterImage
from moldau.cluster.image_listeners import ImageListener
from moldau.cluster.store import MetadataStore
from moldau.core.ids import TopicPartition
from moldau.requests.parts import Parts

log = logging.getLogger(__name__)


class ClusterMember:
    """Registers, follows the image, and takes part in the cluster's work."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        parts: Parts,
        store: MetadataStore,
        coordinators: Sequence[Coordinator[Any]],
        info: BrokerInfo,
        *,
        patience_s: float,
        on_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._parts = parts
        self._coordinators = coordinators
        self._ends: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.isr_changes = IsrProposals(loop, parts)
        self.fetchers = Fetchers(loop, parts)
        self.controller = Controller(loop, parts)
        self.roles = Roles(parts, self.fetchers, self.isr_changes, self._partitions_offline, self._taken_up_late)
        self.registration = Registration(
            parts.metadata,
            store,
            info._replace(offline=self._offline_at_start()),
            patience_s=patience_s,
            on_connection=self.isr_changes.session_changed,
            on_lost=self._session_lost,
            on_registered=self._registered_again,
            on_failed=on_failed,
        )
        self._comeback = Comeback(parts, self.registration, self.roles)

    async def register(self) -> None:
        """Be alive for others; raises BrokerStartError."""
        await self._comeback.withdraw()
        await self._comeback.claim()
        await self.registration.register()
        self._comeback.registered()

    def take_part(self) -> None:
        """Do as the image says, from now on."""
        image = self._parts.metadata.image
        for listener in self.listeners():
            listener(ClusterImage(), image)
            self._ends.append(self._parts.metadata.subscribe(listener))
        self.controller.registered()

    async def until_controlled(self, patience_s: float) -> None:
        """Wait until the cluster has a controller. A client that is told of none may not ask again for minutes."""
        metadata = self._parts.metadata
        known = asyncio.Event()

        def look(_: ClusterImage, image: ClusterImage) -> None:
            if image.controller_id != NO_LEADER:
                known.set()

        look(metadata.image, metadata.image)
        end = metadata.subscribe(look)
        try:
            async with asyncio.timeout(patience_s):
                await known.wait()
        except TimeoutError:
            log.warning("the cluster has no controller yet; clients are served all the same")
        finally:
            end()

    def directory_failed(self, partitions: list[TopicPartition]) -> None:
        """Take partitions offline whose logs were in a directory that failed."""
        self.roles.directory_failed(partitions)

    async def hand_over(self) -> None:
        """Let others lead, if `controlled.shutdown.enable`."""
        config = self._parts.config
        if config.bool("controlled.shutdown.enable"):
            tries = config.int("controlled.shutdown.max.retries") + 1
            pause_ms = config.long("controlled.shutdown.retry.backoff.ms")
            await hand_over(self._parts.metadata, self._parts.broker_id, self.registration, tries * pause_ms)

    async def close(self) -> None:
        """Take part no more. The controller's office is given up last."""
        self.registration.close()
        self._comeback.close()
        for task in self._tasks:
            task.cancel()
        await self.fetchers.close()
        await self.isr_changes.close()
        for end in self._ends:
            end()
        await self.controller.close()

    def listeners(self) -> tuple[ImageListener, ...]:
        """Everybody here who is told of a new image for as long as the broker takes part, in this order.

        First those who only note who is there, and touch no partition. Then the roles: they make, change and end the
        partitions, and take the configuration, on which all others build. Partitions that wait for a decision
        (`comeback`) come next: what is decided is given back to the roles. Who may join the in-sync replicas
        is asked of partitions of this image, not of the one before. Leaders are connected to for what is followed by
        now; coordinators load what is led by now. The controller is last: it changes the cluster, and begins with a
        broker that has done its own part.
        """
        return (
            self._parts.recent_brokers.note,
            self._parts.fetch_sessions.of_replicas.image_changed,
            self.roles.image_changed,
            self._comeback.image_changed,
            self.isr_changes.image_changed,
            self.fetchers.image_changed,
            self._tell_coordinators,
            self.controller.image_changed,
        )

    # The session

    def _session_lost(self) -> None:
        self.roles.resign_all()
        self.coordinators_changed()
        self.controller.session_lost()

    def _registered_again(self) -> None:
        self.roles.may_lead = True
        self.roles.apply_all(self._parts.metadata.image)
        self.coordinators_changed()
        self.controller.registered()

    # Coordinators

    def coordinators_changed(self) -> None:
        """Let every coordinator have the shards that are led here: there is a new one, or the roles changed."""
        self._tell_coordinators(ClusterImage(), self._parts.metadata.image)

    def _taken_up_late(self, topic_partition: TopicPartition) -> None:
        for each in self._coordinators:
            each.taken_up(topic_partition)

    def _tell_coordinators(self, old: ClusterImage, new: ClusterImage) -> None:
        for each in self._coordinators:
            each.image_changed(old, new)

    # Failed directories

    def _offline_at_start(self) -> dict[str, tuple[int, ...]]:
        """Partitions of ours that are nowhere, where a directory cannot be read."""
        logs, image = self._parts.logs, self._parts.metadata.image
        if all(directory.failure is None for directory in logs.directories):
            return {}
        offline: dict[str, tuple[int, ...]] = {}
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                found = logs.get(TopicPartition(topic.name, index))
                if self._parts.broker_id in state.replicas and (found is None or found.failure is not None):
                    offline[topic.name] = (*offline.get(topic.name, ()), index)
        return offline

    def _partitions_offline(self, partitions: list[TopicPartition]) -> None:
        task = self._loop.create_task(self.registration.mark_offline(partitions))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
