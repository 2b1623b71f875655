"""One partition of `__consumer_offsets` in memory.

Handlers reach it through `handlers.groups_access`. A write is decided by a state machine, replayed record by record,
appended to the partition's log, and answered when the log has it.
"""

from collections.abc import Sequence

from moldau.coordinators.groups import Groups
from moldau.coordinators.offsets import Offsets
from moldau.coordinators.outcome import Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.timers import Timers
from moldau.coordinators.world import World
from moldau.core.ids import NO_PRODUCER_ID


class GroupShard:
    """The state that one partition's records come to.

    Of `Groups(world)` it needs `replay(record)`, `on_loaded() -> Sequence[Outcome]`, `on_unloaded()`, and what
    `offsets.GroupDirectory` lists: `find`, `ensure_simple`, `ids`. Deleting a group takes `offsets.tombstones(id)`.
    """

    def __init__(self, world: World) -> None:
        self.timers: Timers = world.timers
        self.groups = Groups(world)
        self.offsets = Offsets(world, self.groups)

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """The only way durable state changes, live and at restart alike."""
        if not self.offsets.replay(record, producer_id):
            self.groups.replay(record)

    def on_loaded(self) -> Sequence[Outcome]:
        """The log has been read to its end: groups start their timers; what that comes to is written."""
        return self.groups.on_loaded()

    def on_unloaded(self) -> None:
        """Another broker coordinates now: everybody who waits is told."""
        self.groups.on_unloaded()
