"""Where replicas go, and the errors Kafka answers with."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.image import BrokerInfo, PartitionImage
from moldau.cluster.placement import (
    PARTITIONS_PER_REQUEST_MAX,
    Assignment,
    assign_replicas,
    place_new_partitions,
    place_new_topic,
)
from moldau.protocol.errors import ApiError, ErrorCode


def brokers(*ids: int, racks: Sequence[str | None] = ()) -> dict[int, BrokerInfo]:
    return {id_: BrokerInfo(id_, racks[index] if racks else None, ()) for index, id_ in enumerate(ids)}


def place(alive: Mapping[int, BrokerInfo], partitions: int, replicas: int, manual: Any = None) -> Assignment:
    return place_new_topic(
        alive,
        partitions,
        replicas,
        manual,
        default_partitions=4,
        default_replication_factor=1,
        random_below=lambda _bound: 0,
    )


def test_one_broker_gets_everything() -> None:
    assert place(brokers(7), 3, 1) == [[7], [7], [7]]


def test_minus_one_takes_the_defaults() -> None:
    assert place(brokers(1), -1, -1) == [[1]] * 4


def test_leaders_go_round_and_followers_shift_with_each_round() -> None:
    assert place(brokers(0, 1, 2), 6, 2) == [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1]]


def test_racks_are_taken_in_turn() -> None:
    alive = brokers(0, 1, 2, 3, racks=["a", "a", "b", "b"])
    assert [replicas[0] for replicas in place(alive, 4, 1)] == [0, 2, 1, 3]


def test_racks_are_ignored_unless_all_brokers_have_one() -> None:
    alive = brokers(0, 1, 2, racks=["a", None, "a"])
    assert [replicas[0] for replicas in place(alive, 3, 1)] == [0, 1, 2]


def test_a_broker_that_shuts_down_gets_nothing_unless_by_name() -> None:
    alive = brokers(0, 1, 2)
    alive[1] = alive[1]._replace(shutting_down=True)
    assert place(alive, 4, 2) == [[0, 2], [2, 0], [0, 2], [2, 0]]
    assert place(alive, -1, -1, {0: [1, 0]}) == [[1, 0]]
    with pytest.raises(ApiError) as error:
        place(alive, 1, 3)
    assert error.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_load_is_even_replicas_distinct_and_racks_used(racks: list[str], partitions: int, data: st.DataObject) -> None:
    replicas = data.draw(st.integers(1, len(racks)))
    source = random.Random(data.draw(st.integers()))
    alive = brokers(*range(len(racks)), racks=racks)
    assignment = assign_replicas(alive, partitions, replicas, random_below=source.randrange)
    leaders = Counter(partition[0] for partition in assignment)
    assert max(leaders.values()) - min(leaders.get(id_, 0) for id_ in alive) <= 1
    for partition in assignment:
        assert len(set(partition)) == replicas
        assert len({racks[id_] for id_ in partition}) == min(replicas, len(set(racks)))


@pytest.mark.parametrize(
    ("partitions", "replicas", "manual", "code"),
    [
        (1, 3, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 0, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, None, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 1, None, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, None, ErrorCode.INVALID_PARTITIONS),
        (PARTITIONS_PER_REQUEST_MAX + 1, 1, None, ErrorCode.POLICY_VIOLATION),
        (-1, -1, {0: [9]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: [1], 2: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {1: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {-1: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: [1], 1: [1, 2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, -1, {0: [1]}, ErrorCode.INVALID_REQUEST),
        (-1, 1, {0: [1]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_wishes_for_a_topic_have_kafkas_error(partitions: int, replicas: int, manual: Any, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as error:
        place(brokers(1, 2), partitions, replicas, manual)
    assert error.value.code is code


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    assert place(brokers(1, 2), -1, -1, {1: [2, 1], 0: [1, 2]}) == [[1, 2], [2, 1]]


def existing(*replicas: tuple[int, ...]) -> list[PartitionImage]:
    return [PartitionImage(each[0], 0, each, each) for each in replicas]


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    added = place_new_partitions(brokers(0, 1, 2), existing((1, 2), (2, 0)), 4, None, random_below=lambda _bound: 0)
    assert [replicas[0] for replicas in added] == [0, 1]
    assert all(len(set(replicas)) == 2 for replicas in added)


def test_added_partitions_can_be_assigned_by_hand() -> None:
    added = place_new_partitions(brokers(1, 2), existing((1,)), 3, [[2], [1]], random_below=lambda _bound: 0)
    assert added == [[2], [1]]


@pytest.mark.parametrize(
    ("count", "manual", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (-5, None, ErrorCode.INVALID_PARTITIONS),
        (20_000, None, ErrorCode.POLICY_VIOLATION),
        (4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_wishes_for_more_partitions_have_kafkas_error(count: int, manual: Any, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as error:
        place_new_partitions(brokers(1, 2), existing((1,), (2,)), count, manual, random_below=lambda _bound: 0)
    assert error.value.code is code
