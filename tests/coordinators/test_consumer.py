"""A consumer group by its heartbeats, in virtual time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moldau.coordinators.consumer.group import validate_heartbeat
from moldau.coordinators.consumer.member import MemberState
from moldau.coordinators.consumer.state import ConsumerState
from moldau.coordinators.groups.group import Caller
from moldau.coordinators.groups.record_tables import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.coordinators.consumer_driver import GROUP, Consumer, ConsumerDriver, settle, topic_id

ASSIGNMENT_INTERVAL_MS = 1_000


def two_members(topics: dict[str, int] | None = None) -> tuple[ConsumerDriver, Consumer, Consumer]:
    driver = ConsumerDriver(topics or {"t": 4})
    one, two = Consumer(driver, "one", *driver.image.topics), Consumer(driver, "two", *driver.image.topics)
    one.join()
    two.join()
    settle(driver, one, two)
    return driver, one, two


@contextmanager
def refusal(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as refused:
        yield
    assert refused.value.code == code


def test_the_first_member_gets_everything_at_once() -> None:
    driver = ConsumerDriver({"t": 3})
    consumer = Consumer(driver, "one", "t")
    answer = consumer.join()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("one", 2, 1_000)
    assert consumer.partitions == {("t", 0), ("t", 1), ("t", 2)}
    assert driver.group.state_name == "Stable"
    assert [type(record.key) for record in driver.log] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_without_news_writes_nothing_and_tells_no_assignment() -> None:
    driver = ConsumerDriver({"t": 3})
    consumer = Consumer(driver, "one", "t")
    consumer.join()
    written = len(driver.log)
    assert consumer.beat().assignment is None
    assert len(driver.log) == written


def test_a_member_that_tells_everything_is_told_everything() -> None:
    driver = ConsumerDriver({"t": 3})
    consumer = Consumer(driver, "one", "t")
    consumer.join()
    answer = consumer.beat(subscribed_topic_names=["t"], rebalance_timeout_ms=30_000)
    assert answer.assignment is not None


def test_a_partition_is_given_only_when_its_owner_let_go() -> None:
    driver = ConsumerDriver({"t": 4})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    one.join()
    driver.pass_time(ASSIGNMENT_INTERVAL_MS)
    assert two.join().member_epoch == 3
    assert two.partitions == set()
    assert driver.group.state.members["two"].state is MemberState.UNRELEASED_PARTITIONS

    assert one.beat(topic_partitions=None).member_epoch == 2
    assert driver.group.state.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    assert two.beat().assignment is None
    assert len(one.partitions) == 2

    assert one.beat().member_epoch == 3
    two.beat()
    assert len(two.partitions) == 2
    assert not one.partitions & two.partitions
    assert driver.group.state_name == "Stable"


def test_targets_are_not_computed_more_often_than_the_interval() -> None:
    driver = ConsumerDriver({"t": 4})
    Consumer(driver, "one", "t").join()
    two = Consumer(driver, "two", "t")
    assert two.join().member_epoch == 2
    assert driver.group.state_name == "Assigning"
    driver.pass_time(ASSIGNMENT_INTERVAL_MS)
    assert two.beat().member_epoch == 3


def test_what_a_member_leaves_goes_to_the_others() -> None:
    driver, one, two = two_members()
    two.leave()
    driver.pass_time(5_000)
    one.beat()
    assert len(one.partitions) == 4


def test_a_silent_member_is_thrown_out_after_its_session() -> None:
    driver, one, _ = two_members()
    for _ in range(10):
        driver.pass_time(5_000)
        one.beat()
    assert set(driver.group.state.members) == {"one"}
    assert len(one.partitions) == 4


def test_a_groups_own_session_timeout_holds_from_the_next_heartbeat_on() -> None:
    driver, one, _two = two_members()
    own = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"}
    driver.image = driver.image.with_group_configs(GROUP, own)
    assert one.beat().heartbeat_interval_ms == 15_000
    driver.pass_time(45_000)
    assert set(driver.group.state.members) == {"one"}
    driver.pass_time(15_000)
    assert set(driver.group.state.members) == set()


def test_a_member_that_does_not_let_go_is_thrown_out_after_its_rebalance_timeout() -> None:
    driver = ConsumerDriver({"t": 2})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    one.join()
    driver.pass_time(ASSIGNMENT_INTERVAL_MS)
    two.join()
    for _ in range(7):
        driver.pass_time(5_000)
        if "one" in driver.group.state.members:
            one.beat(topic_partitions=None)
        two.beat()
    assert set(driver.group.state.members) == {"two"}
    assert len(two.partitions) == 2


def test_new_partitions_and_topics_are_assigned_at_the_next_heartbeat() -> None:
    driver = ConsumerDriver({"t": 1})
    consumer = Consumer(driver, "one", "t", "later")
    consumer.join()
    driver.pass_time(5_000)
    driver.set_topics({"t": 2, "later": 1, "other": 5})
    consumer.beat()
    assert consumer.partitions == {("t", 0), ("t", 1), ("later", 0)}


def test_topics_nobody_reads_change_no_epoch() -> None:
    driver = ConsumerDriver({"t": 1})
    consumer = Consumer(driver, "one", "t")
    epoch = consumer.join().member_epoch
    driver.pass_time(5_000)
    driver.set_topics({"other": 5})
    assert consumer.beat().member_epoch == epoch


def test_an_unsubscribed_topic_is_taken_away_at_once() -> None:
    driver = ConsumerDriver({"a": 1, "b": 1})
    consumer = Consumer(driver, "one", "a", "b")
    consumer.join()
    consumer.beat(subscribed_topic_names=["a"])
    assert consumer.partitions == {("a", 0)}


def test_a_regular_expression_is_resolved_by_the_broker() -> None:
    driver = ConsumerDriver({"metrics.cpu": 1, "metrics.disk": 1, "logs": 1})
    consumer = Consumer(driver, "one", subscribed_topic_regex="metrics\\..*")
    consumer.names = None
    consumer.join()
    assert consumer.partitions == {("metrics.cpu", 0), ("metrics.disk", 0)}
    driver.set_topics({"metrics.net": 1, "my.metrics.x": 1})
    driver.pass_time(5_000)
    consumer.beat()
    assert consumer.partitions == {("metrics.cpu", 0), ("metrics.disk", 0), ("metrics.net", 0)}
    assert driver.group.is_subscribed_to("metrics.net")
    assert not driver.group.is_subscribed_to("logs")


def test_a_pattern_that_is_none_is_refused() -> None:
    driver = ConsumerDriver({"t": 1})
    with refusal(ErrorCode.INVALID_REGULAR_EXPRESSION):
        Consumer(driver, "one", subscribed_topic_regex="(").join()
    assert driver.log == []


def test_patterns_go_with_their_last_subscriber() -> None:
    driver = ConsumerDriver({"t": 1})
    consumer = Consumer(driver, "one", subscribed_topic_regex="t.*")
    consumer.join()
    consumer.leave()
    assert driver.group.state.regexes == {}


def test_an_unknown_member_has_to_join_first() -> None:
    driver = ConsumerDriver({"t": 1})
    Consumer(driver, "one", "t").join()
    with refusal(ErrorCode.UNKNOWN_MEMBER_ID):
        driver.send(member_id="two", member_epoch=3)


@pytest.mark.parametrize("epoch", [1, 7])
def test_a_member_with_a_wrong_epoch_is_fenced(epoch: int) -> None:
    driver = ConsumerDriver({"t": 1})
    Consumer(driver, "one", "t").join()
    with refusal(ErrorCode.FENCED_MEMBER_EPOCH):
        driver.send(member_id="one", member_epoch=epoch, topic_partitions=[])


def test_a_lost_answer_is_made_good_by_the_epoch_before() -> None:
    driver, one, two = two_members()
    before = one.epoch
    two.leave()
    driver.pass_time(5_000)
    owned = [TopicPartitions(topic_id=topic_id("t"), partitions=one.owned[topic_id("t")])]
    lost = driver.send(member_id="one", member_epoch=before, topic_partitions=owned)
    again = driver.send(member_id="one", member_epoch=before, topic_partitions=owned)
    assert again.member_epoch == lost.member_epoch == before + 1


def test_a_static_member_comes_back_to_its_partitions_without_a_new_epoch() -> None:
    driver = ConsumerDriver({"t": 4})
    one, two = Consumer(driver, "one", "t", instance_id="i1"), Consumer(driver, "two", "t", instance_id="i2")
    one.join()
    two.join()
    settle(driver, one, two)
    had, epoch = two.partitions, driver.group.state.epoch
    assert two.leave(-2).member_epoch == -2
    back = Consumer(driver, "two-b", "t", instance_id="i2")
    assert back.join().member_epoch == epoch
    assert back.partitions == had
    assert driver.group.state.epoch == epoch
    assert set(driver.group.state.members) == {"one", "two-b"}


def test_an_instance_id_in_use_is_not_released() -> None:
    driver = ConsumerDriver({"t": 1})
    Consumer(driver, "one", "t", instance_id="i").join()
    with refusal(ErrorCode.UNRELEASED_INSTANCE_ID):
        Consumer(driver, "two", "t", instance_id="i").join()


def test_the_old_holder_of_an_instance_id_is_fenced() -> None:
    driver = ConsumerDriver({"t": 1})
    one = Consumer(driver, "one", "t", instance_id="i")
    one.join()
    one.leave(-2)
    Consumer(driver, "two", "t", instance_id="i").join()
    one.epoch = 2
    with refusal(ErrorCode.FENCED_INSTANCE_ID):
        one.beat()


def test_a_static_member_that_does_not_come_back_loses_its_partitions() -> None:
    driver = ConsumerDriver({"t": 1})
    one = Consumer(driver, "one", "t", instance_id="i")
    one.join()
    one.leave(-2)
    driver.pass_time(45_000)
    assert driver.group.state_name == "Empty"


def remove(driver: ConsumerDriver, *members: MemberIdentity) -> list[int]:
    outcome, promise = driver.group.leave(LeaveGroupRequest(group_id=GROUP, members=list(members)))
    driver.apply(outcome)
    return [member.error_code for member in promise.value.members]


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    driver = ConsumerDriver({"t": 1})
    one = Consumer(driver, "one", "t", instance_id="i")
    one.join()
    assert remove(driver, MemberIdentity(group_instance_id="i")) == [ErrorCode.NONE]
    assert driver.group.state_name == "Empty"
    with refusal(ErrorCode.UNKNOWN_MEMBER_ID):
        one.beat()


def test_an_administrator_removes_members_by_their_ids_and_hears_of_those_that_are_not_there() -> None:
    driver = ConsumerDriver({"t": 2})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    one.join()
    two.join()
    settle(driver, one, two)
    codes = remove(driver, MemberIdentity(member_id="two"), MemberIdentity(member_id="three"))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    settle(driver, one)
    assert one.partitions == {("t", 0), ("t", 1)}


def test_most_members_choose_the_assignor() -> None:
    driver = ConsumerDriver({"a": 2, "b": 2})
    members = [Consumer(driver, name, "a", "b", server_assignor="range") for name in ("x", "y")]
    for member in members:
        member.join()
    settle(driver, *members)
    assert members[0].partitions == {("a", 0), ("b", 0)}
    assert driver.group.describe_consumer().assignor_name == "range"


def test_a_full_group_takes_no_more() -> None:
    driver = ConsumerDriver({"t": 1}, {"group.consumer.max.size": "1"})
    one = Consumer(driver, "one", "t")
    one.join()
    with refusal(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Consumer(driver, "two", "t").join()
    one.beat()


def test_only_the_current_epoch_commits() -> None:
    driver = ConsumerDriver({"t": 1})
    epoch = Consumer(driver, "one", "t").join().member_epoch
    check = driver.group.validate_commit
    check("one", None, epoch, is_transactional=False, api_version=9)
    with refusal(ErrorCode.STALE_MEMBER_EPOCH):
        check("one", None, epoch - 1, is_transactional=False, api_version=9)
    with refusal(ErrorCode.UNKNOWN_MEMBER_ID):
        check("", None, -1, is_transactional=False, api_version=9)
    with refusal(ErrorCode.UNSUPPORTED_VERSION):
        check("one", None, epoch, is_transactional=False, api_version=8)
    with refusal(ErrorCode.STALE_MEMBER_EPOCH):
        driver.group.validate_fetch("one", epoch + 1)
    driver.group.validate_fetch(None, -1)


def test_an_older_epoch_commits_what_the_member_had_by_then_and_has_kept() -> None:
    driver = ConsumerDriver({"t": 4})
    one, two = Consumer(driver, "one", "t"), Consumer(driver, "two", "t")
    before = one.join().member_epoch
    had = one.partitions
    driver.pass_time(5_000)
    two.join()
    settle(driver, one, two)
    assert one.epoch > before

    def commit(member_id: str, epoch: int, partitions: set[tuple[str, int]]) -> None:
        ids = [(topic_id(name), partition) for name, partition in sorted(partitions)]
        driver.group.validate_commit(member_id, None, epoch, is_transactional=False, api_version=9, partitions=ids)

    commit("one", before, one.partitions)
    commit("one", one.epoch, had)  # with its current epoch it is trusted, as in Kafka
    for epoch, partitions in ((before, had), (before - 1, one.partitions), (one.epoch + 1, one.partitions)):
        with refusal(ErrorCode.STALE_MEMBER_EPOCH):
            commit("one", epoch, partitions)
    with refusal(ErrorCode.STALE_MEMBER_EPOCH):
        commit("two", before, two.partitions)


def facts(state: ConsumerState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in ConsumerState.__slots__}


def test_a_new_coordinator_knows_what_the_log_says() -> None:
    driver, one, two = two_members({"a": 3, "b": 2})
    before = facts(driver.group.state)
    driver.restart()
    assert facts(driver.group.state) == before
    written = len(driver.log)
    assert one.beat().assignment is None
    assert len(driver.log) == written
    driver.pass_time(45_000)
    assert driver.group.is_empty
    assert two.partitions


def test_tombstones_leave_nothing() -> None:
    driver, one, two = two_members()
    with refusal(ErrorCode.NON_EMPTY_GROUP):
        driver.group.validate_delete()
    one.leave()
    two.leave()
    driver.group.validate_delete()
    left = {repr(record.key): record.value for record in [*driver.log, *driver.group.tombstones()]}
    assert set(left.values()) == {None}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, object], code: ErrorCode) -> None:
    good: dict[str, object] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 1,
        "topic_partitions": [],
        "subscribed_topic_names": ["t"],
    }
    validate_heartbeat(ConsumerGroupHeartbeatRequest(**good), 1, ["uniform"])  # type: ignore[arg-type]  # as above
    with refusal(code):
        validate_heartbeat(ConsumerGroupHeartbeatRequest(**{**good, **fields}), 1, ["uniform"])  # type: ignore[arg-type]


def refuse_next(driver: ConsumerDriver, **fields: object) -> None:
    """A heartbeat whose records do not get into the log."""
    request = ConsumerGroupHeartbeatRequest(group_id="group", **fields)  # type: ignore[arg-type]  # as given
    outcome, promise = driver.group.consumer_heartbeat(request, Caller(1, "client", "/host"))
    outcome.committed(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not promise.done


def test_new_partitions_are_not_forgotten_if_the_log_refuses_them_once() -> None:
    driver = ConsumerDriver({"t": 1})
    consumer = Consumer(driver, "one", "t")
    consumer.join()
    driver.pass_time(5_000)
    driver.set_topics({"t": 2})
    refuse_next(driver, member_id="one", member_epoch=consumer.epoch)
    consumer.beat()
    assert consumer.partitions == {("t", 0), ("t", 1)}


def test_a_member_whose_leave_was_not_written_is_still_watched() -> None:
    driver = ConsumerDriver({"t": 1})
    Consumer(driver, "one", "t").join()
    refuse_next(driver, member_id="one", member_epoch=-1)
    assert not driver.group.is_empty
    driver.pass_time(45_000)
    assert driver.group.is_empty
