"""Groups that change their protocol while members are in them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.classic.subscription_bytes import (
    ConsumerAssignment,
    ConsumerPartitions,
    ConsumerSubscription,
    parse_assignment,
    serialize_assignment,
    serialize_subscription,
)
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.groups.group import Caller
from moldau.coordinators.groups.groups import Groups
from moldau.coordinators.outcome import Decision, Outcome
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord
from moldau.coordinators.timers import ManualTimers
from moldau.core.clock import ManualClock
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinators.worlds import made_up_world, topic_id

GROUP, TOPIC = "group", "t"
CALLER = Caller(9, "client", "/host")
Partitions = set[int]


class Coordinator:
    """`Groups` with a log, in virtual time. A step is a second, so that a target may be computed in each."""

    def __init__(self, **properties: str) -> None:
        settings = {"group.initial.rebalance.delay.ms": "0", **properties}
        self.clock, self.timers = ManualClock(), ManualTimers(self.apply)
        self.clock.advance(1_000_000)
        self.world = made_up_world(settings, {TOPIC: 4}, clock=self.clock, timers=self.timers)
        self.log: list[CoordinatorRecord] = []
        self.groups = Groups(self.world)
        self.groups.on_loaded()

    def apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.groups.replay(record)
        outcome.committed(0)

    def pass_time(self, ms: int = 1_000) -> None:
        self.clock.advance(ms)
        self.timers.advance(ms)

    def restart(self) -> None:
        self.groups = Groups(self.world)
        for record in self.log:
            self.groups.replay(record)
        self.groups.on_loaded()

    @property
    def state(self) -> tuple[str, str]:
        group = self.groups.find(GROUP)
        assert group is not None
        return group.kind.value, group.state_name


class ClassicConsumer:
    """A cooperative consumer of the classic protocol."""

    def __init__(self, coordinator: Coordinator, member_id: str = "", instance_id: str | None = None) -> None:
        self.coordinator, self.member_id, self.instance_id = coordinator, member_id, instance_id
        self.generation = -1
        self.owned: Partitions = set()
        self.joining: Promise[JoinGroupResponse]

    def send_join(self) -> None:
        owned = [ConsumerPartitions(topic=TOPIC, partitions=sorted(self.owned))]
        subscription = ConsumerSubscription(topics=[TOPIC], owned_partitions=owned if self.owned else [])
        protocol = JoinGroupRequestProtocol(name="sticky", metadata=serialize_subscription(subscription, 1))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        outcome, self.joining = self.coordinator.groups.join(request, CALLER)
        self.coordinator.apply(outcome)
        self.coordinator.timers.advance(0)  # an empty group waits for others, be it for no time at all

    def join(self) -> JoinGroupResponse:
        self.send_join()
        if self.joining.value.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = self.joining.value.member_id
            self.send_join()
        answer = self.joining.value
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, leads: dict[str, Partitions] | None = None) -> None:
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(partitions))
            for member_id, partitions in (leads or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="sticky",
            assignments=assignments,
        )
        outcome, promise = self.coordinator.groups.sync(request)
        self.coordinator.apply(outcome)
        told = parse_assignment(promise.value.assignment).assigned_partitions
        self.owned = {partition for each in told for partition in each.partitions}

    def beat(self) -> int:
        """The heartbeat's code; a rebalance is followed through."""
        outcome, promise = self.coordinator.groups.heartbeat(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
        )
        self.coordinator.apply(outcome)
        if promise.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()
        return promise.value.error_code

    def leave(self) -> int:
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        outcome, promise = self.coordinator.groups.leave(LeaveGroupRequest(group_id=GROUP, members=[member]))
        self.coordinator.apply(outcome)
        return promise.value.members[0].error_code


def _assignment(partitions: Partitions) -> bytes:
    each = ConsumerPartitions(topic=TOPIC, partitions=sorted(partitions))
    return serialize_assignment(ConsumerAssignment(assigned_partitions=[each]), 1)


class NewConsumer:
    """A consumer of the consumer protocol."""

    def __init__(self, coordinator: Coordinator, member_id: str, instance_id: str | None = None) -> None:
        self.coordinator, self.member_id, self.instance_id = coordinator, member_id, instance_id
        self.epoch = 0
        self.owned: Partitions = set()

    def beat(self) -> None:
        is_joining = self.epoch == 0
        answer = self._send(
            topic_partitions=[TopicPartitions(topic_id=topic_id(TOPIC), partitions=sorted(self.owned))]
            if self.owned
            else [],
            subscribed_topic_names=[TOPIC] if is_joining else None,
            rebalance_timeout_ms=30_000 if is_joining else -1,
        )
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each for topic in answer.assignment.topic_partitions for each in topic.partitions}

    def leave(self) -> None:
        self.epoch = -1
        self._send()

    def _send(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            **fields,  # type: ignore[arg-type]  # fields of the request
        )
        outcome, promise = self._decide(request)
        self.coordinator.apply(outcome)
        return promise.value

    def _decide(self, request: ConsumerGroupHeartbeatRequest) -> Decision[ConsumerGroupHeartbeatResponse]:
        return self.coordinator.groups.consumer_heartbeat(request, CALLER._replace(api_version=1))


@contextmanager
def refusal(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as refused:
        yield
    assert refused.value.code == code


def classic_group(coordinator: Coordinator) -> ClassicConsumer:
    """A stable classic group of one."""
    member = ClassicConsumer(coordinator)
    member.join()
    member.sync(leads={member.member_id: {0, 1, 2, 3}})
    assert coordinator.state == ("classic", "Stable")
    return member


def settle(coordinator: Coordinator, *members: ClassicConsumer | NewConsumer) -> None:
    for _ in range(8):
        coordinator.pass_time()
        for member in members:
            member.beat()


def test_a_consumer_of_the_new_protocol_upgrades_the_group_and_shares_with_the_old_ones() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    assert coordinator.state[0] == "consumer"
    assert new.owned == set()  # the old one has everything still
    settle(coordinator, old, new)
    assert coordinator.state == ("consumer", "Stable")
    assert len(old.owned) == len(new.owned) == 2
    assert not old.owned & new.owned


def test_a_member_keeps_its_generation_until_there_is_a_step_to_take() -> None:
    coordinator = Coordinator()
    old = classic_group(coordinator)
    generation = old.generation
    NewConsumer(coordinator, "new").beat()
    group = coordinator.groups.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    assert group.state.members[old.member_id].epoch == generation
    group.validate_commit(old.member_id, None, generation, is_transactional=False, api_version=8)
    with refusal(ErrorCode.ILLEGAL_GENERATION):
        group.validate_commit(old.member_id, None, generation + 5, is_transactional=False, api_version=8)


def test_parked_joins_are_sent_back_into_the_upgraded_group() -> None:
    coordinator = Coordinator()
    old, waiting = classic_group(coordinator), ClassicConsumer(coordinator)
    with pytest.raises(LookupError):
        waiting.join()  # the old one has not rejoined yet
    NewConsumer(coordinator, "new").beat()
    assert waiting.joining.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    waiting.join()
    waiting.sync()
    settle(coordinator, old, waiting)


def test_the_last_new_member_to_leave_downgrades_the_group() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    settle(coordinator, old, new)
    new.leave()
    assert coordinator.state == ("classic", "PreparingRebalance")
    answer = old.join()
    assert answer.leader == old.member_id
    old.sync(leads={old.member_id: {0, 1, 2, 3}})
    assert coordinator.state == ("classic", "Stable")
    group = coordinator.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.generation == old.generation


def test_the_last_new_member_to_fall_silent_downgrades_the_group() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    settle(coordinator, old, new)
    for _ in range(44):
        coordinator.pass_time()
        old.beat()
    coordinator.pass_time()
    assert coordinator.state == ("classic", "PreparingRebalance")


def test_an_old_member_that_falls_silent_in_the_upgraded_group_is_thrown_out() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    for _ in range(12):
        coordinator.pass_time()
        new.beat()
    assert new.owned == {0, 1, 2, 3}
    with refusal(ErrorCode.UNKNOWN_MEMBER_ID):
        old.beat()


def test_an_old_member_that_does_not_rejoin_is_thrown_out() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    for _ in range(32):
        coordinator.pass_time()
        new.beat()
        if new.owned:
            break
        outcome, _ = coordinator.groups.heartbeat(
            HeartbeatRequest(group_id=GROUP, generation_id=old.generation, member_id=old.member_id)
        )
        coordinator.apply(outcome)
    assert new.owned == {0, 1, 2, 3}


def test_old_members_leave_the_upgraded_group() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    assert old.leave() == ErrorCode.NONE
    assert old.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    settle(coordinator, new)
    assert new.owned == {0, 1, 2, 3}


def test_a_static_member_keeps_its_partitions_through_both_changes_of_protocol() -> None:
    coordinator = Coordinator()
    old = ClassicConsumer(coordinator, instance_id="i")
    old.join()
    old.sync(leads={old.member_id: {0, 1, 2, 3}})
    new = NewConsumer(coordinator, "new", instance_id="i")
    new.beat()
    assert new.owned == {0, 1, 2, 3}
    assert coordinator.state == ("consumer", "Stable")
    back = ClassicConsumer(coordinator, instance_id="i")
    back.join()
    assert coordinator.state[0] == "classic"


def test_migration_survives_a_restart() -> None:
    coordinator = Coordinator()
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    coordinator.restart()
    settle(coordinator, old, new)
    assert len(old.owned) == len(new.owned) == 2
    new.leave()
    coordinator.restart()
    assert coordinator.state == ("classic", "Stable")


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_without_leave_to_upgrade_the_new_member_is_refused(policy: str) -> None:
    coordinator = Coordinator(**{"group.consumer.migration.policy": policy})
    classic_group(coordinator)
    with refusal(ErrorCode.GROUP_ID_NOT_FOUND):
        NewConsumer(coordinator, "new").beat()


def test_without_leave_to_migrate_old_members_are_refused() -> None:
    coordinator = Coordinator(**{"group.consumer.migration.policy": "disabled"})
    NewConsumer(coordinator, "new").beat()
    with refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        ClassicConsumer(coordinator).join()


def test_without_leave_to_downgrade_the_group_stays_what_it_is() -> None:
    coordinator = Coordinator(**{"group.consumer.migration.policy": "upgrade"})
    old, new = classic_group(coordinator), NewConsumer(coordinator, "new")
    new.beat()
    settle(coordinator, old, new)
    new.leave()
    settle(coordinator, old)
    assert coordinator.state[0] == "consumer"


def test_a_group_that_is_not_of_consumers_stays_classic() -> None:
    coordinator = Coordinator()
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"x")],
    )
    outcome, _ = coordinator.groups.join(request, CALLER._replace(api_version=3))
    coordinator.apply(outcome)
    with refusal(ErrorCode.GROUP_ID_NOT_FOUND):
        NewConsumer(coordinator, "new").beat()
