"""Classic groups in virtual time: a log that can refuse or hold writes, and clients that join, sync and beat."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from moldau.cluster.image import ClusterImage
from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.classic.subscription_bytes import ConsumerSubscription, serialize_subscription
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.groups.group import Caller
from moldau.coordinators.groups.groups import Groups
from moldau.coordinators.groups.record_tables import GROUP_RECORDS
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.timers import ManualTimers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

T = TypeVar("T")

GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def protocols(*names: str, topics: Sequence[str] = ("topic",)) -> list[JoinGroupRequestProtocol]:
    metadata = serialize_subscription(ConsumerSubscription(topics=list(topics)), 1)
    return [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names or ("range",)]


class ClassicDriver:
    """`log` is what a broker would have on disk. `hold`: writes stay uncommitted. `refuse`: the next write fails."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.config, _ = BrokerConfig.parse(dict(properties or {}))
        self.clock = ManualClock()
        self.timers = ManualTimers(self.apply)
        self.log: list[CoordinatorRecord] = []
        self.hold = False
        self.refuse: ErrorCode | None = None
        self.held: list[Outcome] = []
        self._ids = 0
        self.groups = Groups(self.world())
        self.groups.on_loaded()

    def world(self) -> World:
        return World(self.clock, self.timers, lambda: self.config, ClusterImage, self._new_uuid, MatchingAllowance())

    def _new_uuid(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    @property
    def group(self) -> ClassicGroup:
        found = self.groups.find(GROUP)
        assert isinstance(found, ClassicGroup)
        return found

    def apply(self, outcome: Outcome) -> None:
        if outcome.records and self.refuse is not None:
            refuse, self.refuse = self.refuse, None
            outcome.committed(refuse)
            return
        for record in outcome.records:
            self.log.append(record)
            self.groups.replay(record)
        if self.hold and outcome.records:
            self.held.append(outcome)
        else:
            outcome.committed(0)

    def release(self, error_code: int = 0) -> None:
        """Commit, or fail, what was held."""
        self.hold = False
        held, self.held = self.held, []
        for outcome in held:
            outcome.committed(error_code)

    def run(self, decision: Decision[T]) -> Promise[T]:
        outcome, promise = decision
        self.apply(outcome)
        return promise

    def advance(self, ms: int) -> None:
        """Timers see the wall clock of the end, which no test depends on."""
        self.clock.advance(ms)
        self.timers.advance(ms)

    def restart(self) -> None:
        """Another coordinator reads the log, as bytes."""
        self.groups.on_unloaded()
        self.timers = ManualTimers(self.apply)
        self.groups = Groups(self.world())
        for record in self.log:
            decoded = GROUP_RECORDS.decode(*encode_record(record))
            assert decoded is not None
            self.groups.replay(decoded)
        for outcome in self.groups.on_loaded():
            self.apply(outcome)

    # --- requests

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        offered: Sequence[JoinGroupRequestProtocol] | None = None,
        group_id: str = GROUP,
    ) -> Promise[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=list(protocols() if offered is None else offered),
        )
        return self.run(self.groups.join(request, Caller(version, "client", "/127.0.0.1")))

    def new_member(self, **options: object) -> tuple[str, Promise[JoinGroupResponse]]:
        """Both joins of a new member (KIP-394): its id, and the second answer."""
        member_id = self.join(**options).value.member_id  # type: ignore[arg-type]  # passed on as they are
        return member_id, self.join(member_id, **options)  # type: ignore[arg-type]  # as above

    def sync(
        self,
        member_id: str,
        generation: int,
        assignment: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_name: str | None = "range",
    ) -> Promise[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=share)
                for member, share in (assignment or {}).items()
            ],
        )
        return self.run(self.groups.sync(request))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return self.run(self.groups.heartbeat(request)).value.error_code

    def leave(self, *members: MemberIdentity) -> Promise[LeaveGroupResponse]:
        return self.run(self.groups.leave(LeaveGroupRequest(group_id=GROUP, members=list(members))))

    # --- whole stories

    def stable_group(self, count: int = 1, **options: object) -> list[str]:
        """A group of `count` members, the leader first, in which everybody has a share named after it."""
        joins = [self.new_member(**options) for _ in range(count)]
        self.advance(DELAY_MS if count == 1 else 2 * DELAY_MS)
        members = [member_id for member_id, _ in joins]
        self.settle(members)
        return members

    def settle(self, members: Sequence[str]) -> None:
        """All sync, the leader last."""
        generation, leader = self.group.generation, self.group.members.leader_id
        for member_id in sorted(members, key=lambda each: each == leader):
            self.sync(member_id, generation, {each: each.encode() for each in members})
        assert self.group.state_name == "Stable"
