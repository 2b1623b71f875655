"""The group coordinator of a broker: the coordinator of `__consumer_offsets`, whose shards are groups and offsets."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.coordinator import Coordinator
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.groups.offsets_topic import offsets_topic_settings
from moldau.coordinators.timers import Timers
from moldau.core.internal_topics import OFFSETS_TOPIC
from moldau.requests.parts import Parts

if TYPE_CHECKING:  # imported after the start (`background_imports.py`), or with the first shard
    from moldau.coordinators.groups.shard import GroupShard


class GroupCoordinator(Coordinator["GroupShard"]):
    """Implements `handlers.groups_access.GroupsAccess`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: Parts, new_uuid: Callable[[], bytes]) -> None:
        self._new_uuid = new_uuid
        self._matching = MatchingAllowance()
        super().__init__(loop, parts, OFFSETS_TOPIC, offsets_topic_settings, self._group_shard)

    def _group_shard(self, timers: Timers) -> "GroupShard":
        from moldau.coordinators.groups.shard import GroupShard  # see above
        from moldau.coordinators.groups.world import World

        parts = self._parts
        return GroupShard(
            World(
                parts.clock,
                timers,
                lambda: parts.config,
                lambda: parts.metadata.image,
                self._new_uuid,
                self._matching,
            )
        )
