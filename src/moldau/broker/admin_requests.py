"""The controller's answer to tools of the ZooKeeper era, which ask by writing below /admin.

Law: level-triggered, as the controller itself. What is asked is compared with what is; what is so already, or cannot
be, is taken away from the tree, and the rest is begun and looked at again. So a new controller goes on where the old
one stopped, and nothing is done twice.
"""

import logging
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from moldau.cluster.admin_tree import AdminRequests, Partition
from moldau.cluster.elections import preferred
from moldau.cluster.image import ClusterImage
from moldau.cluster.metadata import Metadata
from moldau.core.dynamic_config import DynamicConfig
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:  # imported for the first tool that asks this way
    from moldau.protocol.messages.k45_alter_partition_reassignments import ReassignableTopic

log = logging.getLogger(__name__)

Moves = Mapping[Partition, tuple[int, ...]]


class AdminServing:
    """Does what is asked, while this broker is the controller."""

    def __init__(self, metadata: Metadata, config: DynamicConfig) -> None:
        self._metadata = metadata
        self._config = config
        self._is_asked = True
        self._is_moving = False

    def changed(self) -> None:
        """Something below /admin has changed, or this broker has become the controller."""
        self._is_asked = True

    async def serve(self) -> bool:
        """Do what can be done now; False: some of it has to be tried again."""
        if not self._is_asked and not self._is_moving:
            return True
        self._is_asked = False
        requests = await self._metadata.admin.read()
        is_done = await self._delete(requests)
        await self._elect(requests)
        return await self._move(requests) and is_done

    async def _delete(self, requests: AdminRequests) -> bool:
        metadata, is_done = self._metadata, True
        for name in requests.deletions:
            try:
                if not self._config.now.bool("delete.topic.enable"):
                    log.warning("topic %s is not deleted as a tool asks: delete.topic.enable is false", name)
                elif name in metadata.image.topics:
                    log.info("topic %s is deleted, as a tool asks through /admin/delete_topics", name)
                    await metadata.delete_topic(name)
            except ApiError as error:
                log.warning("topic %s cannot be deleted yet: %s", name, error)
                is_done = False
                continue
            await metadata.admin.deleted(name, metadata.controller_guard())
        return is_done

    async def _elect(self, requests: AdminRequests) -> None:
        if requests.election_version < 0:
            return
        from moldau.handlers.k43_elect_leaders import elect_leaders  # see above

        metadata = self._metadata
        results = await elect_leaders(metadata, preferred, list(requests.elections))
        for (topic, index), code in results.items():
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                log.warning("the preferred replica of %s-%d does not lead, as a tool asks: %s", topic, index, code.name)
        await metadata.admin.elected(requests.election_version, metadata.controller_guard())

    async def _move(self, requests: AdminRequests) -> bool:
        self._is_moving = bool(requests.moves)
        if requests.moves_version < 0:
            return True
        metadata = self._metadata
        refused, is_done = await self._begin(requests.moves)
        left = {
            partition: target
            for partition, target in requests.moves.items()
            if partition not in refused and not _has_arrived(metadata.image, partition, target)
        }
        self._is_moving = bool(left)
        if len(left) < len(requests.moves) or not left:
            await metadata.admin.moved(left, requests.moves_version, metadata.controller_guard())
        return is_done

    async def _begin(self, moves: Moves) -> tuple[set[Partition], bool]:
        """Moves that are impossible, and whether all others have begun."""
        from moldau.protocol.messages.k45_alter_partition_reassignments import (
            ReassignablePartition,
            ReassignableTopic,
        )

        image = self._metadata.image
        wanted = sorted(each for each, target in moves.items() if not _is_on_its_way(image, each, target))
        refused: set[Partition] = set()
        is_done = True
        for name, partitions in groupby(wanted, key=lambda partition: partition[0]):
            asked = [
                ReassignablePartition(partition_index=index, replicas=list(moves[name, index]))
                for _, index in partitions
            ]
            for index, error in (await self._reassign(ReassignableTopic(name=name, partitions=asked))).items():
                if error.code is ErrorCode.REQUEST_TIMED_OUT:
                    is_done = False
                else:
                    log.error("%s-%d is not reassigned as a tool asks: %s", name, index, error)
                    refused.add((name, index))
        return refused, is_done

    async def _reassign(self, topic: "ReassignableTopic") -> Mapping[int, ApiError]:
        from moldau.handlers.k45_alter_partition_reassignments import reassign

        return await reassign(self._metadata, topic, may_resize=True)


def _is_on_its_way(image: ClusterImage, partition: Partition, target: tuple[int, ...]) -> bool:
    state = image.partition(*partition)
    return state is not None and state.target == target


def _has_arrived(image: ClusterImage, partition: Partition, target: tuple[int, ...]) -> bool:
    state = image.partition(*partition)
    return state is not None and state.replicas == target and not state.adding and not state.removing
