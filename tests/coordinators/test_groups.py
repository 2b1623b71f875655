"""Groups of a shard: creation, lists, deletion, and which kind an id stands for."""

import pytest

from moldau.coordinators.classic.group import ClassicGroup
from moldau.coordinators.classic.subscription_bytes import ConsumerAssignment, serialize_assignment
from moldau.coordinators.consumer.group import ConsumerGroup
from moldau.coordinators.groups.group import Caller, Group
from moldau.coordinators.groups.record_tables import GroupMetadataValue
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest
from moldau.protocol.messages.k14_sync_group import SyncGroupRequest
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from .classic_driver import DELAY_MS, GROUP, SESSION_MS, ClassicDriver

NO_PARTITIONS = serialize_assignment(ConsumerAssignment(), 0)


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def consumer_beat(driver: ClassicDriver, member_id: str, epoch: int) -> int:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["topic"],
        topic_partitions=[],
    )
    decision = driver.groups.consumer_heartbeat(request, Caller(1, "client", "/127.0.0.1"))
    return driver.run(decision).value.member_epoch


def test_both_kinds_are_groups() -> None:
    world = ClassicDriver().world()
    both: list[Group] = [ClassicGroup(GROUP, world), ConsumerGroup(GROUP, world)]
    assert [group.is_empty for group in both] == [True, True]


def test_a_group_is_in_the_log_as_soon_as_a_member_asks_for_it() -> None:
    driver = ClassicDriver()
    driver.join()
    value = driver.log[0].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol_type, value.protocol, value.leader, value.members) == (
        0,
        "",
        None,
        None,
        [],
    )
    driver.restart()
    assert driver.group.is_empty


def test_a_group_that_cannot_be_written_does_not_exist() -> None:
    driver = ClassicDriver()
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.join()
    assert driver.groups.find(GROUP) is None
    assert driver.timers.keys() == []


def test_requests_of_members_need_a_group_and_a_name() -> None:
    groups = ClassicDriver().groups
    for name, code in [("", ErrorCode.INVALID_GROUP_ID), ("none", ErrorCode.UNKNOWN_MEMBER_ID)]:
        with refused(code):
            groups.heartbeat(HeartbeatRequest(group_id=name))
        with refused(code):
            groups.sync(SyncGroupRequest(group_id=name))
        with refused(code):
            groups.leave(LeaveGroupRequest(group_id=name))


def test_lists_are_filtered_by_state_and_type_in_any_case_of_letters() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    driver.groups.ensure_simple("simple")
    listed = {group.group_id: group for group in driver.groups.listed()}
    assert (listed[GROUP].protocol_type, listed[GROUP].group_state, listed[GROUP].group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert listed["simple"].protocol_type == ""
    assert [group.group_id for group in driver.groups.listed(states=["sTABLE"])] == [GROUP]
    assert [group.group_id for group in driver.groups.listed(["Empty", "Stable"], ["Classic"])] == [GROUP, "simple"]
    assert driver.groups.listed(types=["consumer"]) == []
    assert driver.groups.listed(types=["nonsense"]) == []


def test_only_an_empty_group_can_be_deleted() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    with refused(ErrorCode.NON_EMPTY_GROUP):
        driver.groups.delete(GROUP, [])
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        driver.groups.delete("none", [])
    driver.advance(SESSION_MS)
    driver.run(driver.groups.delete(GROUP, []))
    assert driver.groups.find(GROUP) is None
    driver.restart()
    assert driver.groups.find(GROUP) is None


def test_a_group_that_does_not_exist_cannot_be_described() -> None:
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        ClassicDriver().groups.describe("none")


def test_an_offset_that_was_read_first_does_not_hide_the_group() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    log = list(driver.log)
    fresh = ClassicDriver()
    fresh.groups = type(fresh.groups)(fresh.world())
    fresh.groups.ensure_simple(GROUP)
    for record in log:
        fresh.groups.replay(record)
    assert fresh.group.state_name == "Stable"


# --- two kinds under one id


def test_a_consumer_takes_over_an_empty_classic_group() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    driver.advance(SESSION_MS)
    assert consumer_beat(driver, "m", 0) > 0
    assert isinstance(driver.groups.find(GROUP), ConsumerGroup)
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        driver.groups.describe(GROUP)
    driver.restart()
    assert driver.groups.consumer_group(GROUP).state_name != "Empty"


def test_a_classic_member_takes_over_an_empty_consumer_group() -> None:
    driver = ClassicDriver()
    consumer_beat(driver, "m", 0)
    consumer_beat(driver, "m", -1)
    _, answer = driver.new_member()
    driver.advance(DELAY_MS)
    driver.settle([answer.value.member_id])
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        driver.groups.consumer_group(GROUP)
    driver.restart()
    assert driver.group.state_name == "Stable"


def test_a_takeover_that_cannot_be_written_leaves_the_old_group() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    driver.advance(SESSION_MS)
    driver.refuse = ErrorCode.NOT_COORDINATOR
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    driver.run(driver.groups.consumer_heartbeat(request, Caller(1, "client", "")))
    assert driver.group.is_empty


def test_a_consumer_group_is_joined_before_it_is_beaten_to() -> None:
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        consumer_beat(ClassicDriver(), "m", 3)


# --- online migration


def migrating() -> tuple[ClassicDriver, str, str]:
    """A stable classic group of two, to which a consumer came."""
    driver = ClassicDriver({"group.initial.rebalance.delay.ms": str(DELAY_MS)})
    answers = [driver.new_member() for _ in range(2)]
    driver.advance(2 * DELAY_MS)
    first, second = (member_id for member_id, _ in answers)
    for member_id in (second, first):
        driver.sync(member_id, 1, {first: NO_PARTITIONS, second: NO_PARTITIONS})
    assert consumer_beat(driver, "m", 0) > 1
    return driver, first, second


def test_a_consumer_upgrades_a_classic_group_that_has_members() -> None:
    driver, first, second = migrating()
    group = driver.groups.consumer_group(GROUP)
    assert set(group.state.members) == {first, second, "m"}
    assert driver.timers.due_in_ms(f"session/{GROUP}/{first}") is None
    driver.restart()
    assert set(driver.groups.consumer_group(GROUP).state.members) == {first, second, "m"}


def test_members_of_the_classic_protocol_go_on_in_an_upgraded_group() -> None:
    driver, first, _ = migrating()
    assert driver.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    answer = driver.join(first).value
    assert (answer.error_code, answer.member_id) == (0, first)
    assert driver.sync(first, answer.generation_id).value.error_code == 0


def test_whoever_waits_during_an_upgrade_is_told_to_join_again() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    driver.group.members[driver.group.members.leader_id or ""].assignment = NO_PARTITIONS
    _, parked = driver.new_member()
    consumer_beat(driver, "m", 0)
    assert parked.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_last_consumer_leaves_the_others_are_a_classic_group_that_rebalances() -> None:
    driver, first, second = migrating()
    consumer_beat(driver, "m", -1)
    assert driver.group.state_name == "PreparingRebalance"
    answers = [driver.join(member_id) for member_id in (first, second)]
    assert [answer.value.error_code for answer in answers] == [0, 0]
    driver.settle([first, second])
    driver.restart()
    assert driver.group.state_name == "Stable"


def test_an_upgrade_that_cannot_be_written_leaves_a_classic_group() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    driver.group.members[member].assignment = NO_PARTITIONS
    driver.refuse = ErrorCode.NOT_COORDINATOR
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    driver.run(driver.groups.consumer_heartbeat(request, Caller(1, "client", "")))
    assert driver.join(member).value.generation_id == 2


def test_an_upgrade_can_be_forbidden() -> None:
    driver = ClassicDriver({"group.consumer.migration.policy": "disabled"})
    driver.stable_group()
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        consumer_beat(driver, "m", 0)
    assert driver.group.state_name == "Stable"
