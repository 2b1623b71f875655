"""Static members (KIP-345): an instance that comes back takes its old place."""

import pytest

from moldau.coordinators.classic.state import ClassicState
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k13_leave_group import MemberIdentity

from .classic_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, ClassicDriver, protocols


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def static_group(driver: ClassicDriver) -> tuple[str, str]:
    """A stable group of the instances a, which leads, and b."""
    answers = [driver.join(instance_id=instance_id) for instance_id in ("a", "b")]
    driver.advance(2 * DELAY_MS)
    first, second = (answer.value.member_id for answer in answers)
    driver.sync(second, 1, instance_id="b")
    driver.sync(first, 1, {first: b"0", second: b"1"}, instance_id="a")
    return first, second


def test_a_static_member_needs_no_second_join() -> None:
    driver = ClassicDriver()
    first, _ = static_group(driver)
    assert first.startswith("a-")
    assert driver.group.state is ClassicState.STABLE


def test_an_instance_that_comes_back_gets_its_share_without_a_rebalance() -> None:
    driver = ClassicDriver()
    leader, old = static_group(driver)
    answer = driver.join(instance_id="b").value
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (0, 1, leader, [])
    assert answer.member_id != old
    assert driver.sync(answer.member_id, 1, instance_id="b").value.assignment == b"1"
    driver.restart()
    assert driver.heartbeat(answer.member_id, 1, "b") == ErrorCode.NONE


def test_whoever_still_uses_the_old_member_id_is_fenced() -> None:
    driver = ClassicDriver()
    _, old = static_group(driver)
    driver.join(instance_id="b")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        driver.heartbeat(old, 1, "b")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        driver.sync(old, 1, instance_id="b")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        driver.join(old, instance_id="b")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        driver.group.validate_commit(old, "b", 1, is_transactional=False, api_version=10)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.heartbeat(old, 1)


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    driver = ClassicDriver()
    static_group(driver)
    answer = driver.join(instance_id="a").value
    assert (answer.leader, answer.skip_assignment, len(answer.members)) == (answer.member_id, True, 2)


def test_before_kip_814_a_leader_that_comes_back_is_told_that_it_is_not_the_leader() -> None:
    driver = ClassicDriver()
    old, _ = static_group(driver)
    answer = driver.join(instance_id="a", version=8).value
    assert (answer.leader, answer.skip_assignment, answer.members) == (old, False, [])
    assert driver.group.members.leader_id == answer.member_id


def test_an_instance_that_comes_back_with_another_protocol_makes_the_group_rebalance() -> None:
    driver = ClassicDriver()
    both = protocols("range", "sticky")
    first = driver.join(instance_id="a", offered=both)
    driver.advance(DELAY_MS)
    member = first.value.member_id
    driver.sync(member, 1, {member: b"0"}, instance_id="a")
    answer = driver.join(instance_id="a", offered=protocols("sticky", "range"))
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        driver.join(instance_id="b", offered=protocols("other"))
    assert answer.value.generation_id == 2
    assert answer.value.protocol_name == "sticky"


def test_an_instance_that_comes_back_while_a_join_is_parked_fences_that_join() -> None:
    driver = ClassicDriver()
    first = driver.join(instance_id="a")
    second = driver.join(instance_id="a")
    assert first.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    driver.advance(2 * DELAY_MS)
    assert second.value.generation_id == 1


def test_an_instance_that_comes_back_during_the_syncs_starts_another_rebalance() -> None:
    driver = ClassicDriver()
    answers = [driver.join(instance_id=instance_id) for instance_id in ("a", "b")]
    driver.advance(2 * DELAY_MS)
    share = driver.sync(answers[1].value.member_id, 1, instance_id="b")
    driver.join(instance_id="b")
    assert share.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.group.state is ClassicState.PREPARING_REBALANCE


def test_a_replacement_that_cannot_be_written_is_undone() -> None:
    driver = ClassicDriver()
    _, old = static_group(driver)
    driver.refuse = ErrorCode.NOT_COORDINATOR
    answer = driver.join(instance_id="b").value
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert driver.heartbeat(old, 1, "b") == ErrorCode.NONE
    driver.advance(SESSION_MS - 1)
    assert old in driver.group.members


def test_a_static_member_that_stays_away_keeps_its_place_in_a_rebalance_until_its_session_ends() -> None:
    driver = ClassicDriver()
    first = driver.join(instance_id="a", session_ms=300_000)
    driver.advance(DELAY_MS)
    member = first.value.member_id
    driver.sync(member, 1, {member: b"0"}, instance_id="a")
    _, new = driver.new_member()
    driver.advance(REBALANCE_MS)
    assert (new.value.generation_id, new.value.leader) == (2, new.value.member_id)
    assert len(new.value.members) == 2


def test_if_only_static_members_are_left_and_none_rejoins_the_rebalance_goes_on() -> None:
    driver = ClassicDriver()
    first, _ = static_group(driver)
    driver.leave(MemberIdentity(member_id=first, group_instance_id="a"))
    assert driver.group.state is ClassicState.PREPARING_REBALANCE
    driver.advance(SESSION_MS)
    assert driver.group.is_empty


def test_a_static_member_can_be_removed_by_its_instance_id() -> None:
    driver = ClassicDriver()
    static_group(driver)
    answer = driver.leave(MemberIdentity(member_id="", group_instance_id="b")).value
    assert [(result.member_id, result.error_code) for result in answer.members] == [("", 0)]
    assert driver.group.members.static_id("b") is None


def test_leaving_under_an_old_member_id_is_fenced() -> None:
    driver = ClassicDriver()
    _, old = static_group(driver)
    driver.join(instance_id="b")
    answer = driver.leave(MemberIdentity(member_id=old, group_instance_id="b")).value
    assert [result.error_code for result in answer.members] == [ErrorCode.FENCED_INSTANCE_ID]
