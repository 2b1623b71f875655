"""A member of a consumer group (KIP-848): what it wants, what it has, and its next step towards what it should have.

The law: a partition is given to a member only when nobody else holds it, and a member moves to the epoch of the
target assignment only when it has let go of everything the target does not give it.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.coordinators.consumer.assignors import Partitions
from moldau.coordinators.groups.record_tables import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)
from moldau.protocol.errors import ApiError, ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

Held = Mapping[bytes, Mapping[int, int]]
"""Topic id to partition to the epoch at which the member got it (KIP-1251)."""
NOTHING_HELD: Held = {}
NEVER = 2**31
"""Later than every epoch."""


class MemberState(IntEnum):
    """Progress of a member towards its target; the numbers are those in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """Has to give up partitions before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that another member still holds."""
    UNKNOWN = 127


_STATES: Mapping[int, MemberState] = {state.value: state for state in MemberState}

TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = {
    state: frozenset((MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS))
    for state in MemberState
}
"""Every state may be followed by each of the three known ones: a new target may come at any time. A state that we do
not know (written by a later version) is only left, never entered."""


class ConsumerMember(NamedTuple):
    """An immutable value; a change is a new one that `replay` puts in its place."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set while the member still speaks the classic protocol (online migration)."""
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Held = NOTHING_HELD
    pending_revocation: Held = NOTHING_HELD

    @property
    def holds(self) -> Iterable[tuple[bytes, int]]:
        """Everything that nobody else may have yet."""
        for held in (self.assigned, self.pending_revocation):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    yield topic_id, partition

    def has_held(self, partitions: Iterable[tuple[bytes, int]], epoch: int) -> bool:
        """Whether it was given all of these at this epoch or before, and has kept them since (KIP-1251)."""
        if epoch > self.epoch:
            return False
        return all(epoch >= self._held_since(topic_id, partition) for topic_id, partition in partitions)

    def _held_since(self, topic_id: bytes, partition: int) -> int:
        for held in (self.assigned, self.pending_revocation):
            since = held.get(topic_id, {}).get(partition)
            if since is not None:
                return since
        return NEVER

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        """Member with the fields of its metadata record."""
        return ConsumerMember(
            self.member_id,
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            frozenset(value.subscribed_topic_names),
            value.subscribed_topic_regex,
            value.rebalance_timeout_ms,
            value.server_assignor,
            value.classic_member_metadata,
            self.state,
            self.epoch,
            self.previous_epoch,
            self.assigned,
            self.pending_revocation,
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        """Member with the fields of its assignment record."""
        return self._replace(
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_held(value.assigned_partitions, value.member_epoch),
            pending_revocation=_held(value.partitions_pending_revocation, value.member_epoch),
        )

    def at_epoch(self, epoch: int) -> "ConsumerMember":
        """Moved to an epoch; the one before stays known, as the answer with the new one may get lost."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)


def _held(topics: Iterable[CurrentTopicPartitions], epoch: int) -> Held:
    """Brokers before 4.3 wrote no epochs: the member's own is the safe one."""
    return {
        each.topic_id: dict(
            zip(each.partitions, each.assignment_epochs or [epoch] * len(each.partitions), strict=False)
        )
        for each in topics
    }


class Target(NamedTuple):
    """Assignment that a member should reach, and the epoch of it."""

    epoch: int
    partitions: Partitions


Owned = Iterable[tuple[bytes, int]] | None
"""Partitions that a member names as its own in a heartbeat; None: it named none."""


class Reconciliation(NamedTuple):
    """The circumstances of a member's next step."""

    target: Target
    subscribed_topics: frozenset[bytes]
    """Ids of the topics it subscribes to that exist."""
    is_held: Callable[[bytes, int], bool]
    """Does any member, this one included, still hold the partition?"""
    owned: Owned
    subscription_changed: bool = False

    def next(self, member: ConsumerMember) -> ConsumerMember:
        """The member after its next step, the same value if there is none."""
        match member.state:
            case MemberState.STABLE if member.epoch == self.target.epoch:
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS if self._still_owns(member.pending_revocation):
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNKNOWN:
                return self._from_unknown(member)
        return self._towards_target(member)

    def _from_unknown(self, member: ConsumerMember) -> ConsumerMember:
        """Start a member over whose state was written by a version that knows more states than we."""
        if self.owned is None or any(True for _ in self.owned):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "the member's state is unknown: it must give up all partitions and rejoin",
            )
        return self._towards_target(member._replace(epoch=self.target.epoch))

    def _still_owns(self, revoked: Held) -> bool:
        if self.owned is None:
            return True
        return any(partition in revoked.get(topic_id, ()) for topic_id, partition in self.owned)

    def _without_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke at once what it no longer subscribes to; the target comes later (KIP-1263 may delay it)."""
        gone = {topic: held for topic, held in member.assigned.items() if topic not in self.subscribed_topics}
        if not gone:
            return member
        kept = {topic: held for topic, held in member.assigned.items() if topic in self.subscribed_topics}
        revoked = _merged(member.pending_revocation, gone)
        if not self._still_owns(revoked):
            return member.at_epoch(member.epoch)._replace(assigned=kept)
        return _revoking(member, kept, revoked)

    def _towards_target(self, member: ConsumerMember) -> ConsumerMember:
        target = {
            topic: partitions for topic, partitions in self.target.partitions.items() if topic in self.subscribed_topics
        }
        kept, revoked = _split(member.assigned, target)
        if revoked and self._still_owns(revoked):
            return _revoking(member, kept, revoked)
        wanted = [(topic, each) for topic, some in target.items() for each in some if each not in kept.get(topic, ())]
        free = [(topic, each) for topic, each in wanted if not self.is_held(topic, each)]
        return member._replace(
            epoch=self.target.epoch,
            previous_epoch=member.epoch,
            state=MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS,
            assigned=_added(kept, free, self.target.epoch),
            pending_revocation=NOTHING_HELD,
        )


def _revoking(member: ConsumerMember, kept: Held, revoked: Held) -> ConsumerMember:
    """Member that stays at its epoch until it has given up `revoked`."""
    return member.at_epoch(member.epoch)._replace(
        state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
    )


def _split(held: Held, target: Partitions) -> tuple[Held, Held]:
    """Partitions that are in the target, and partitions that are not."""
    kept: dict[bytes, dict[int, int]] = {}
    rest: dict[bytes, dict[int, int]] = {}
    for topic, partitions in held.items():
        wanted = target.get(topic, frozenset())
        for partition, epoch in partitions.items():
            (kept if partition in wanted else rest).setdefault(topic, {})[partition] = epoch
    return kept, rest


def _merged(one: Held, other: Held) -> Held:
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in (*one, *other)}


def _added(held: Mapping[bytes, Mapping[int, int]], more: Iterable[tuple[bytes, int]], epoch: int) -> Held:
    result = {topic: dict(partitions) for topic, partitions in held.items()}
    for topic, partition in more:
        result.setdefault(topic, {})[partition] = epoch
    return result
