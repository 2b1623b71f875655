"""Joins, generations, assignments and sessions of classic groups."""

import pytest

from moldau.coordinators.classic.state import TRANSITIONS, ClassicState, check_transition, diagram
from moldau.core.invariants import InvariantError
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k13_leave_group import MemberIdentity

from .classic_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, ClassicDriver, protocols


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code == code)


# --- the table


@pytest.mark.parametrize("old", ClassicState)
@pytest.mark.parametrize("new", ClassicState)
def test_only_the_arrows_of_the_table_are_gone(old: ClassicState, new: ClassicState) -> None:
    if new in TRANSITIONS[old]:
        check_transition(old, new)
    else:
        with pytest.raises(InvariantError):
            check_transition(old, new)


def test_the_diagram_has_an_arrow_for_each_transition() -> None:
    arrows = sum(map(len, TRANSITIONS.values()))
    assert diagram().count("-->") == arrows + 1
    assert "Stable --> PreparingRebalance" in diagram()


# --- joining


def test_a_new_member_is_sent_back_with_an_id_and_then_joins() -> None:
    driver = ClassicDriver()
    first = driver.join().value
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    second = driver.join(first.member_id)
    assert not second.done
    driver.advance(DELAY_MS)
    assert (second.value.error_code, second.value.generation_id, second.value.leader) == (0, 1, first.member_id)
    assert [member.member_id for member in second.value.members] == [first.member_id]
    assert (second.value.protocol_type, second.value.protocol_name) == ("consumer", "range")


def test_before_kip_394_a_member_joins_at_once() -> None:
    driver = ClassicDriver()
    answer = driver.join(version=3)
    driver.advance(DELAY_MS)
    assert answer.value.error_code == 0
    assert answer.value.member_id == answer.value.leader


def test_the_first_rebalance_is_put_off_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    driver = ClassicDriver()
    _, first = driver.new_member(rebalance_ms=10_000)
    for _ in range(3):
        driver.advance(DELAY_MS - 1)
        driver.new_member(rebalance_ms=10_000)
        assert not first.done
        driver.advance(1)
    assert not first.done
    driver.advance(1_000)
    assert first.done
    assert len(first.value.members) == 4


def test_the_first_rebalance_ends_when_nobody_came_during_the_delay() -> None:
    driver = ClassicDriver()
    _, first = driver.new_member()
    driver.new_member()
    driver.advance(DELAY_MS)
    assert not first.done
    driver.advance(DELAY_MS)
    assert first.done


def test_without_a_delay_the_first_rebalance_ends_at_once() -> None:
    driver = ClassicDriver({"group.initial.rebalance.delay.ms": "0"})
    _, answer = driver.new_member()
    driver.advance(0)
    assert answer.done


def test_a_known_member_id_needs_a_group() -> None:
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        ClassicDriver().join("nobody")


def test_a_member_id_that_was_not_given_out_is_unknown() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.join("nobody")


def test_a_group_needs_a_name() -> None:
    with refused(ErrorCode.INVALID_GROUP_ID):
        ClassicDriver().join(group_id="")


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    with refused(ErrorCode.INVALID_SESSION_TIMEOUT):
        ClassicDriver().join(session_ms=session_ms)


def test_a_member_without_protocols_is_inconsistent() -> None:
    driver = ClassicDriver()
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        driver.join(offered=[])
    assert driver.groups.ids() == []


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "sticky")])
def test_a_member_of_another_protocol_is_inconsistent(kind: str, name: str) -> None:
    driver = ClassicDriver()
    driver.stable_group()
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        driver.join(protocol_type=kind, offered=protocols(name))


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    driver = ClassicDriver()
    _, first = driver.new_member(offered=protocols("own", "sticky", "range"))
    driver.new_member(offered=protocols("range", "sticky"))
    driver.new_member(offered=protocols("sticky", "range"))
    driver.advance(REBALANCE_MS)
    assert first.value.protocol_name == "sticky"


def test_a_new_member_makes_a_stable_group_rebalance() -> None:
    driver = ClassicDriver()
    (old,) = driver.stable_group()
    _, new = driver.new_member()
    assert driver.heartbeat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(old)
    assert (again.value.generation_id, new.value.generation_id) == (2, 2)
    assert len(again.value.members) == 2
    assert new.value.members == []


def test_a_rebalance_waits_for_a_member_that_was_given_an_id() -> None:
    driver = ClassicDriver()
    (old,) = driver.stable_group()
    _, new = driver.new_member()
    pending = driver.join().value.member_id
    again = driver.join(old)
    assert not again.done
    driver.join(pending)
    assert again.done
    assert new.done


def test_a_member_that_was_given_an_id_and_stays_away_holds_nobody_up_beyond_its_session() -> None:
    driver = ClassicDriver()
    (old,) = driver.stable_group()
    driver.new_member()
    driver.join()
    again = driver.join(old)
    driver.advance(SESSION_MS)
    assert again.done


def test_who_does_not_rejoin_in_time_is_out() -> None:
    driver = ClassicDriver()
    late, _ = driver.stable_group(2, session_ms=300_000)
    _, new = driver.new_member()
    driver.advance(REBALANCE_MS - 1)
    assert not new.done
    driver.advance(1)
    assert new.value.leader == new.value.member_id
    assert [member.member_id for member in new.value.members] == [new.value.member_id]
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.heartbeat(late, 1)


def test_version_0_bounds_the_rebalance_by_the_session_timeout() -> None:
    driver = ClassicDriver()
    driver.join(version=0, rebalance_ms=-1)
    driver.advance(DELAY_MS)
    assert [member.rebalance_timeout_ms for member in driver.group.members] == [SESSION_MS]


def test_a_leader_that_joins_a_stable_group_makes_it_rebalance() -> None:
    driver = ClassicDriver()
    leader, follower = driver.stable_group(2)
    answer = driver.join(leader)
    assert not answer.done
    driver.join(follower)
    assert answer.value.generation_id == 2


def test_a_follower_that_joins_a_stable_group_unchanged_is_told_the_generation() -> None:
    driver = ClassicDriver()
    leader, follower = driver.stable_group(2)
    answer = driver.join(follower).value
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert driver.group.state is ClassicState.STABLE


def test_a_follower_with_another_subscription_makes_the_group_rebalance() -> None:
    driver = ClassicDriver()
    _, follower = driver.stable_group(2)
    driver.join(follower, offered=protocols(topics=("other",)))
    assert driver.group.state is ClassicState.PREPARING_REBALANCE


def test_a_member_that_missed_the_answer_to_its_join_gets_it_again() -> None:
    driver = ClassicDriver()
    leader, first = driver.new_member()
    driver.advance(DELAY_MS)
    assert driver.join(leader).value == first.value
    assert driver.group.state is ClassicState.COMPLETING_REBALANCE


def test_a_join_that_is_sent_again_replaces_the_parked_one() -> None:
    driver = ClassicDriver()
    member, first = driver.new_member()
    second = driver.join(member)
    assert first.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(DELAY_MS)
    assert second.value.generation_id == 1


def test_a_first_join_that_nobody_repeats_is_dropped_after_five_minutes() -> None:
    driver = ClassicDriver()
    (old,) = driver.stable_group(session_ms=1_800_000, rebalance_ms=1_000_000)
    _, new = driver.new_member()
    driver.advance(5 * 60_000)
    assert new.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join(old).value.generation_id == 2


def test_a_full_group_takes_nobody_else() -> None:
    driver = ClassicDriver({"group.max.size": "2"})
    driver.stable_group(2)
    assert driver.join().value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_of_a_group_above_a_lowered_limit_the_first_to_rejoin_stay() -> None:
    driver = ClassicDriver()
    members = driver.stable_group(3)
    driver.config, _ = type(driver.config).parse({"group.max.size": "2"})
    driver.restart()
    assert driver.group.state is ClassicState.PREPARING_REBALANCE
    kept = [driver.join(member) for member in members[:2]]
    assert driver.join(members[2]).value.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    driver.advance(REBALANCE_MS)
    assert [answer.value.generation_id for answer in kept] == [2, 2]


# --- syncing


def test_nobody_gets_a_share_before_the_assignment_is_committed() -> None:
    driver = ClassicDriver()
    (leader, _), (follower, _) = driver.new_member(), driver.new_member()
    driver.advance(2 * DELAY_MS)
    driver.hold = True
    shares = driver.sync(follower, 1), driver.sync(leader, 1, {leader: b"0", follower: b"1"})
    assert not any(share.done for share in shares)
    driver.release()
    assert [share.value.assignment for share in shares] == [b"1", b"0"]
    assert shares[0].value.protocol_name == "range"


def test_a_member_that_the_leader_forgot_gets_an_empty_share() -> None:
    driver = ClassicDriver()
    (leader, _), (follower, _) = driver.new_member(), driver.new_member()
    driver.advance(2 * DELAY_MS)
    driver.sync(leader, 1, {leader: b"all"})
    assert driver.sync(follower, 1).value.assignment == b""


def test_an_assignment_that_cannot_be_written_starts_another_rebalance() -> None:
    driver = ClassicDriver()
    (leader, _), (follower, _) = driver.new_member(), driver.new_member()
    driver.advance(2 * DELAY_MS)
    waiting = driver.sync(follower, 1)
    driver.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.sync(leader, 1, {leader: b"0"}).value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.state is ClassicState.PREPARING_REBALANCE


def test_an_assignment_that_is_committed_too_late_counts_for_nothing() -> None:
    driver = ClassicDriver()
    leader, _ = driver.new_member()
    driver.advance(DELAY_MS)
    driver.hold = True
    share = driver.sync(leader, 1, {leader: b"0"})
    driver.new_member()
    assert share.value.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    driver.release()
    assert driver.group.state is ClassicState.PREPARING_REBALANCE


def test_a_sync_has_to_name_generation_member_and_protocol() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    with refused(ErrorCode.ILLEGAL_GENERATION):
        driver.sync(member, 2)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.sync("nobody", 1)
    with refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
        driver.sync(member, 1, protocol_name="sticky")
    assert driver.sync(member, 1).value.assignment == member.encode()
    driver.join(member)
    driver.new_member()


def test_a_sync_during_a_rebalance_is_sent_to_join() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    driver.new_member()
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        driver.sync(member, 1)


def test_members_that_joined_and_do_not_sync_are_removed_after_the_rebalance_timeout() -> None:
    driver = ClassicDriver()
    (leader, _), (lazy, _) = driver.new_member(session_ms=300_000), driver.new_member(session_ms=300_000)
    driver.advance(2 * DELAY_MS)
    driver.sync(leader, 1, {leader: b"0"})
    driver.advance(REBALANCE_MS)
    assert lazy not in driver.group.members
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


# --- sessions


def test_a_silent_member_is_out_after_its_session_timeout() -> None:
    driver = ClassicDriver()
    leader, silent = driver.stable_group(2)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader, 1) == ErrorCode.NONE
    driver.advance(1)
    assert driver.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.heartbeat(silent, 1)


def test_a_group_whose_members_all_fell_silent_is_empty_in_the_log_too() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    driver.advance(SESSION_MS)
    assert driver.group.is_empty
    driver.restart()
    assert (driver.group.is_empty, driver.group.generation, driver.group.protocol_type) == (True, 2, "consumer")


def test_a_member_whose_join_is_parked_needs_no_heartbeat() -> None:
    driver = ClassicDriver()
    slow, waiting = driver.stable_group(2, session_ms=10_000)
    driver.new_member()
    answer = driver.join(waiting)
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        driver.heartbeat(slow, 1)
    assert not answer.done
    driver.advance(SESSION_MS)
    assert answer.value.error_code == 0


def test_a_commit_counts_as_a_heartbeat() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    driver.advance(SESSION_MS - 1)
    driver.group.keep_alive(member)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(member, 1) == ErrorCode.NONE


def test_a_heartbeat_of_another_generation_is_illegal() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    with refused(ErrorCode.ILLEGAL_GENERATION):
        driver.heartbeat(member, 0)


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    driver = ClassicDriver()
    member, _ = driver.new_member()
    driver.advance(DELAY_MS)
    assert driver.heartbeat(member, 1) == ErrorCode.NONE


# --- leaving


def test_the_last_to_leave_empties_the_group_before_it_is_answered() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    driver.hold = True
    answer = driver.leave(MemberIdentity(member_id=member))
    assert not answer.done
    driver.release()
    assert [result.error_code for result in answer.value.members] == [0]
    assert driver.group.is_empty


def test_a_member_that_leaves_makes_the_others_rebalance() -> None:
    driver = ClassicDriver()
    leader, follower = driver.stable_group(2)
    driver.leave(MemberIdentity(member_id=leader))
    answer = driver.join(follower).value
    assert (answer.leader, answer.generation_id) == (follower, 2)


def test_each_member_that_leaves_has_its_own_result() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    pending = driver.join().value.member_id
    answer = driver.leave(
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id=pending),
        MemberIdentity(member_id="", group_instance_id="nothing"),
    ).value
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [result.error_code for result in answer.members] == [unknown, 0, unknown]


def test_who_leaves_while_its_join_is_parked_is_answered() -> None:
    driver = ClassicDriver()
    driver.stable_group()
    new, answer = driver.new_member()
    driver.leave(MemberIdentity(member_id=new))
    assert answer.value.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- commits, fetches, expiry


def test_commits_are_checked_against_member_and_generation() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    commit = driver.group.validate_commit
    commit(member, None, 1, is_transactional=False, api_version=10)
    commit("", None, -1, is_transactional=True, api_version=3)
    for who, generation, code in [
        (member, 2, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with refused(code):
            commit(who, None, generation, is_transactional=False, api_version=10)


def test_commits_wait_for_the_end_of_a_rebalance_once_joins_are_answered() -> None:
    driver = ClassicDriver()
    member, _ = driver.new_member()
    driver.advance(DELAY_MS)
    with refused(ErrorCode.REBALANCE_IN_PROGRESS):
        driver.group.validate_commit(member, None, 1, is_transactional=False, api_version=10)


def test_commits_are_taken_while_a_rebalance_is_prepared() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    driver.new_member()
    driver.group.validate_commit(member, None, 1, is_transactional=False, api_version=10)


def test_anybody_may_commit_to_an_empty_group_without_a_generation() -> None:
    group = ClassicDriver().groups.ensure_simple("simple")
    group.validate_commit("", None, -1, is_transactional=False, api_version=10)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.validate_commit("member", None, 0, is_transactional=False, api_version=10)


def test_subscribed_topics_are_those_of_all_members() -> None:
    driver = ClassicDriver()
    driver.new_member(offered=protocols(topics=("a",)))
    driver.new_member(offered=protocols(topics=("b",)))
    driver.advance(2 * DELAY_MS)
    assert [driver.group.is_subscribed_to(topic) for topic in ("a", "b", "c")] == [True, True, False]


def test_a_group_whose_metadata_is_not_understood_may_be_subscribed_to_anything() -> None:
    driver = ClassicDriver()
    bad = [type(protocols()[0])(name="range", metadata=b"\1")]
    driver.new_member(offered=bad)
    driver.advance(DELAY_MS)
    assert driver.group.is_subscribed_to("anything")
    assert driver.group.offset_expiry() is None


def test_offsets_age_from_the_commit_or_from_the_end_of_the_group() -> None:
    driver = ClassicDriver()
    simple = driver.groups.ensure_simple("simple").offset_expiry()
    assert simple is not None
    assert simple.idle_since_ms is None
    driver.stable_group()
    stable = driver.group.offset_expiry()
    assert stable is not None
    assert stable.idle_since_ms is None
    driver.new_member()
    assert driver.group.offset_expiry() is None
    driver.advance(10 * REBALANCE_MS)
    empty = driver.group.offset_expiry()
    assert driver.group.is_empty
    assert empty is not None
    assert empty.idle_since_ms == driver.group.state_since_ms


def test_a_group_that_is_not_of_consumers_keeps_its_offsets_while_it_has_members() -> None:
    driver = ClassicDriver()
    driver.new_member(protocol_type="connect")
    driver.advance(DELAY_MS)
    assert driver.group.offset_expiry() is None
    with refused(ErrorCode.NON_EMPTY_GROUP):
        driver.group.validate_offset_delete()


# --- restart and the end


def test_a_restart_brings_members_and_shares_back_with_a_full_session() -> None:
    driver = ClassicDriver()
    members = driver.stable_group(2)
    driver.restart()
    assert driver.group.state is ClassicState.STABLE
    assert driver.sync(members[1], 1).value.assignment == members[1].encode()
    driver.advance(SESSION_MS - 1)
    assert [driver.heartbeat(member, 1) for member in members] == [0, 0]
    assert driver.group.is_subscribed_to("topic")


def test_a_restart_in_the_middle_of_a_rebalance_goes_back_to_the_generation_before() -> None:
    driver = ClassicDriver()
    (old,) = driver.stable_group()
    driver.new_member()
    driver.join(old)
    driver.restart()
    assert driver.group.generation == 1
    assert driver.heartbeat(old, 1) == ErrorCode.NONE


def test_when_the_coordinator_moves_all_who_wait_are_told() -> None:
    driver = ClassicDriver()
    (leader, _), (follower, _) = driver.new_member(), driver.new_member()
    driver.advance(2 * DELAY_MS)
    share = driver.sync(follower, 1)
    group = driver.group
    driver.groups.on_unloaded()
    assert share.value.error_code == ErrorCode.NOT_COORDINATOR
    assert driver.timers.keys() == []
    with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        group.validate_commit(leader, None, 1, is_transactional=False, api_version=10)


def test_only_a_stable_group_tells_what_its_members_subscribe_to() -> None:
    driver = ClassicDriver()
    (member,) = driver.stable_group()
    described = driver.groups.describe("group")
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert described.members[0].member_assignment == member.encode()
    assert described.members[0].client_host == "/127.0.0.1"
    driver.new_member()
    described = driver.groups.describe("group")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_metadata for each in described.members} == {b""}
    assert [each.member_assignment for each in described.members] == [member.encode(), b""]
