"""Heartbeat interval that each answer to a member of a consumer group names.

Consumers obey it, so a group that is still settling can be asked more often, and need not wait out whole intervals of
`group.consumer.heartbeat.interval.ms` for each step. That setting is the longest; and a member is not asked for more
than a handful of additional heartbeats however long the others take, as each pause is twice the one before.
"""

from moldau.coordinators.consumer.member import ConsumerMember, MemberState
from moldau.coordinators.consumer.state import ConsumerState

SOON_MS = 200


class Pace:
    """Intervals of one group. Lives in memory: a new coordinator begins with the shortest pause again."""

    __slots__ = ("_pauses_ms",)

    def __init__(self) -> None:
        self._pauses_ms: dict[str, int] = {}
        """Last pause of each member that waits for others."""

    def forget(self, member_id: str) -> None:
        self._pauses_ms.pop(member_id, None)

    def interval_ms(
        self, member: ConsumerMember, state: ConsumerState, *, is_new: bool, target_due_ms: int, longest_ms: int
    ) -> int:
        """`target_due_ms`: how long until the group may get a new target (KIP-1263), from now."""
        if state.epoch > state.assignment_epoch or is_new:
            # There will be a target then. Who joins is rarely the last: it may have to share what it was just given.
            return min(longest_ms, max(target_due_ms, SOON_MS))
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            pause_ms = self._pauses_ms.get(member.member_id, SOON_MS // 2) * 2
            self._pauses_ms[member.member_id] = min(pause_ms, longest_ms)
            return self._pauses_ms[member.member_id]
        self.forget(member.member_id)
        return longest_ms
