"""Interface of a group of any kind to the shard that holds it.

`Groups` keeps groups of both kinds in one map and sends each request to the group it names; `Offsets` asks a group
whether a commit, a fetch or a deletion is allowed. A request comes to a `Decision`: records, and the promise of an
answer; one that is refused raises `ApiError`, which the handler puts into the answer.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.records import CoordinatorRecord
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.messages.k15_describe_groups import DescribedGroup

NO_MEMBER_ID = ""


class GroupKind(Enum):
    """The type of a group, as ListGroups names it (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """Sender of a request, and the version of the request."""

    api_version: int
    client_id: str
    client_host: str


class OffsetExpiry(NamedTuple):
    """Start of the time after which a group's offsets expire (KIP-211). Topics it is subscribed to are exempt."""

    idle_since_ms: int | None
    """Wall clock of the moment the group fell empty; None: every offset ages from its own commit."""


class Group(Protocol):
    """One group, whichever protocol its members speak."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """State as Kafka's tools print it: Empty, PreparingRebalance, Stable, Assigning, Reconciling ..."""
        ...

    @property
    def protocol_type(self) -> str:
        """`consumer` for groups of consumers, empty for a group that never had a member."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no member: it may be deleted, and replaced by a group of the other kind."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, or may do so for all we know."""
        ...

    # what Offsets asks

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Sequence[tuple[bytes, int]] = (),
    ) -> None:
        """Raise ApiError if this member may not commit now. `partitions`: what it commits, by topic id."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError if this member may not read committed offsets now (OffsetFetch 9+)."""
        ...

    def validate_offset_delete(self) -> None:
        """Raise ApiError if no offset of this group may be deleted."""
        ...

    def offset_expiry(self) -> OffsetExpiry | None:
        """Rule by which its offsets expire; None: they do not expire now."""
        ...

    def keep_alive(self, member_id: str) -> None:
        """Count a commit of this member as a heartbeat, as the classic protocol does."""
        ...

    # life of the group

    def validate_delete(self) -> None:
        """Raise ApiError unless the group may be deleted."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """Records that remove the group (not its offsets) from the log."""
        ...

    def on_loaded(self) -> Outcome:
        """Start timers: the log has been read to its end and this broker is the coordinator."""
        ...

    def on_unloaded(self) -> None:
        """Answer all who wait with NOT_COORDINATOR and cancel timers: another broker is the coordinator now."""
        ...

    # the classic protocol; a consumer group serves it for members that migrate, and otherwise refuses

    def join(self, request: JoinGroupRequest, caller: Caller) -> Decision[JoinGroupResponse]: ...

    def sync(self, request: SyncGroupRequest) -> Decision[SyncGroupResponse]: ...

    def heartbeat(self, request: HeartbeatRequest) -> Decision[HeartbeatResponse]: ...

    def leave(self, request: LeaveGroupRequest) -> Decision[LeaveGroupResponse]: ...

    def describe(self) -> DescribedGroup:
        """Description for DescribeGroups. A consumer group raises GROUP_ID_NOT_FOUND: it is described by key 69."""
        ...
