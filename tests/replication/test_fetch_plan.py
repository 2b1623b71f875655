"""What a follower tells its leader, and which answers count."""

import pytest

from moldau.core.ids import TopicPartition
from moldau.log.log import Log
from moldau.protocol.fetch_values import EPOCH_MAX
from moldau.replication.fetch_plan import Fetch, FetchPlan
from moldau.replication.follower import FollowedPartition
from tests.log.helpers import append, batch, memory_log

TOPIC_ID = bytes(range(16))


def fetch(index: int = 0, log: Log | None = None) -> Fetch:
    opened = log or memory_log()
    opened.topic_partition = TopicPartition("events", index)
    return Fetch(FollowedPartition(TOPIC_ID, opened, leader_id=2, leader_epoch=4, high_watermark=0))


@pytest.fixture
def plan() -> FetchPlan:
    return FetchPlan()


def named(plan: FetchPlan) -> list[int]:
    return [each.partition for each in plan.next_request().named.get(TOPIC_ID, [])]


def test_a_partition_is_named_once_and_then_when_it_moved(plan: FetchPlan) -> None:
    first, second = fetch(0), fetch(1)
    plan.add(first)
    plan.add(second)
    assert named(plan) == [0, 1]
    assert named(plan) == []
    append(second.partition.log, batch(b"a", b"b"), 3)
    plan.name_again(second)
    request = plan.next_request()
    assert request.named == {TOPIC_ID: [(1, 4, 2, 3, 0)]}


def test_session_epochs_count_up_and_around_but_not_to_zero(plan: FetchPlan) -> None:
    epochs = [plan.next_request().session_epoch for _ in range(3)]
    assert epochs == [0, 1, 2]
    plan._epoch = EPOCH_MAX
    assert [plan.next_request().session_epoch for _ in range(2)] == [EPOCH_MAX, 1]


def test_an_answer_counts_only_for_the_position_that_was_named(plan: FetchPlan) -> None:
    each = fetch()
    plan.add(each)
    assert plan.find(each.key, 1) is None  # not named yet
    first = plan.next_request().number
    assert plan.find(each.key, first) is each
    assert plan.find(each.key, first + 1) is each  # later answers too: the leader knows the position
    plan.name_again(each)
    assert plan.find(each.key, first + 1) is None
    second = plan.next_request().number
    assert plan.find(each.key, first) is None
    assert plan.find(each.key, second) is each


def test_what_is_removed_is_forgotten_by_the_next_request_once(plan: FetchPlan) -> None:
    each = fetch(7)
    plan.add(each)
    plan.next_request()
    plan.remove(each)
    assert plan.find(each.key, 1) is None
    assert plan.next_request().forgotten == {TOPIC_ID: [7]}
    assert plan.next_request().forgotten == {}


def test_what_was_never_named_or_was_refused_need_not_be_forgotten(plan: FetchPlan) -> None:
    unnamed, refused = fetch(0), fetch(1)
    plan.add(refused)
    plan.next_request()
    plan.refused(refused)
    plan.add(unnamed)
    plan.remove(unnamed)
    plan.remove(refused)
    assert plan.next_request().forgotten == {}


def test_a_new_object_takes_the_place_of_the_old_one_without_forgetting(plan: FetchPlan) -> None:
    old = fetch()
    plan.add(old)
    number = plan.next_request().number
    new = fetch(log=old.partition.log)
    plan.remove(old)
    plan.add(new)
    request = plan.next_request()
    assert (list(request.named), request.forgotten) == ([TOPIC_ID], {})
    assert plan.find(new.key, number) is None
    assert plan.find_moved(new.key, number) is None
    assert plan.find(new.key, request.number) is new
    plan.remove(old)
    assert plan.holds(new)


def test_what_is_said_of_the_leader_counts_for_as_long_as_the_session_had_the_partition(plan: FetchPlan) -> None:
    each = fetch()
    plan.add(each)
    first = plan.next_request().number
    plan.name_again(each)
    assert plan.find_moved(each.key, first) is each
    plan.next_request()
    assert plan.find_moved(each.key, first) is each
    plan.refused(each)
    plan.name_again(each)
    second = plan.next_request().number
    assert plan.find_moved(each.key, first) is None
    assert plan.find_moved(each.key, second) is each


def test_starting_over_names_what_the_session_had_but_not_what_pauses(plan: FetchPlan) -> None:
    resting, paused = fetch(0), fetch(1)
    plan.add(resting)
    plan.add(paused)
    plan.next_request()
    plan.session_id = 9
    plan.leave_out(paused)
    plan.start_over()
    request = plan.next_request()
    assert (request.session_id, request.session_epoch, request.forgotten) == (0, 0, {})
    assert [each.partition for each in request.named[TOPIC_ID]] == [0]
