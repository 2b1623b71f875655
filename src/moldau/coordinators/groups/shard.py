"""One partition of `__consumer_offsets` in memory. Handlers reach it through `handlers.groups_access`."""

from collections.abc import Mapping, Sequence

from moldau.coordinators.groups.groups import Groups
from moldau.coordinators.groups.offsets import Offsets
from moldau.coordinators.groups.record_tables import GROUP_RECORDS
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.shard import CoordinatorShard
from moldau.coordinators.timers import Timers
from moldau.core.ids import NO_PRODUCER_ID


class GroupShard(CoordinatorShard):
    """Groups and their offsets.

    Of `Groups(world)` it needs `replay(record)`, `on_loaded() -> Sequence[Outcome]`, `on_unloaded()`, and what
    `offsets.GroupDirectory` lists: `find`, `ensure_simple`, `ids`. Deleting a group takes `offsets.tombstones(id)`.
    """

    record_types = GROUP_RECORDS

    def __init__(self, world: World) -> None:
        self.timers: Timers = world.timers
        self.groups = Groups(world)
        self.offsets = Offsets(world, self.groups)

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        if not self.offsets.replay(record, producer_id):
            self.groups.replay(record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def on_loaded(self) -> Sequence[Outcome]:
        """Groups start their timers; what that comes to is written."""
        return self.groups.on_loaded()

    def on_unloaded(self) -> None:
        self.groups.on_unloaded()

    def topics_deleted(self, topic_ids: Mapping[str, bytes]) -> Outcome:
        return self.offsets.topics_deleted(topic_ids)

    def clean_up(self) -> Outcome:
        """Forget offsets past their retention, and groups that have nothing left."""
        return self.offsets.expire()
