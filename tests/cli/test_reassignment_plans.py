"""Plans of where replicas are to be."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import PartitionState
from moldau.cli.reassignment_plans import (
    Plan,
    States,
    balanced,
    current,
    document,
    drained,
    generated,
    leaders_balanced,
    plan_in,
    topics_in,
    with_copies,
    without_leaderships,
)

NO_RACKS: dict[int, str | None] = {}


def states(*replicas: tuple[int, ...]) -> States:
    """The partitions of a topic with these replicas, all in sync and led by the first."""
    return {("t", at): PartitionState("t", at, each[0], each, each, False) for at, each in enumerate(replicas)}


def applied(before: States, plan: Plan) -> Plan:
    return {**current(before), **plan}


def loads(plan: Plan, sizes: dict[tuple[str, int], int]) -> Counter[int]:
    load: Counter[int] = Counter()
    for each, replicas in plan.items():
        load.update(dict.fromkeys(replicas, sizes[each]))
    return load


def test_a_generated_plan_spreads_leaders_and_followers() -> None:
    plan = generated(states(*[(1, 2)] * 12), [1, 2, 3], NO_RACKS)
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 4, 2: 4, 3: 4}
    assert Counter(broker for replicas in plan.values() for broker in replicas) == {1: 8, 2: 8, 3: 8}


def test_replicas_of_a_generated_plan_are_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = generated(states(*[(1, 2)] * 8), [1, 2, 3, 4], racks)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in plan.values())


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ToolError, match="at least 2 brokers"):
        generated(states((1, 2)), [1], NO_RACKS)


def test_a_drained_broker_has_nothing_and_its_heirs_are_those_with_the_fewest_bytes() -> None:
    before = states((1, 2), (2, 3), (3, 1), (1, 3))
    plan = drained(before, 1, [2, 3, 4], {("t", 0): 100, ("t", 2): 10, ("t", 3): 50})
    assert plan == {("t", 0): (4, 2), ("t", 2): (3, 2), ("t", 3): (4, 3)}


def test_a_partition_with_replicas_everywhere_shrinks_only_if_it_may() -> None:
    before = states((1, 2))
    with pytest.raises(ToolError, match="--allow-fewer-replicas"):
        drained(before, 1, [2], {})
    assert drained(before, 1, [2], {}, may_shrink=True) == {("t", 0): (2,)}
    with pytest.raises(ToolError):
        drained(states((1,)), 1, [], {}, may_shrink=True)


def test_leaderships_go_to_replicas_in_sync_only() -> None:
    before = dict(states((1, 2, 3), (1, 2), (2, 1)))
    before["t", 0] = before["t", 0]._replace(isr=(1, 3))
    before["t", 1] = before["t", 1]._replace(isr=(1,))
    assert without_leaderships(before, 1) == {("t", 0): (3, 2, 1)}


def test_a_broker_that_leads_without_being_preferred_is_relieved_too() -> None:
    before = dict(states((2, 1)))
    before["t", 0] = before["t", 0]._replace(leader=1)
    assert without_leaderships(before, 1) == {("t", 0): (2, 1)}


def test_replicas_are_added_where_the_fewest_are_and_those_that_are_there_stay() -> None:
    before = states((1,), (1,), (2, 3))
    assert with_copies(before, [1, 2, 3], NO_RACKS, 2) == {("t", 0): (1, 2), ("t", 1): (1, 3), ("t", 2): (2, 3)}
    assert with_copies(before, [1, 2, 3], NO_RACKS, 1) == {("t", 0): (1,), ("t", 1): (1,), ("t", 2): (2,)}
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    assert with_copies(states((1,)), [1, 2, 3], racks, 2) == {("t", 0): (1, 3)}
    with pytest.raises(ToolError, match="4 replicas of t-0 need as many brokers: there are 3"):
        with_copies(before, [1, 2, 3], NO_RACKS, 4)


def test_balance_moves_nothing_where_everything_is_even() -> None:
    before = states((1, 2), (2, 3), (3, 1))
    assert balanced(before, [1, 2, 3], dict.fromkeys(before, 100)) == {}


def test_balance_fills_a_new_broker() -> None:
    before = states(*[(1, 2), (2, 1)] * 6)
    sizes = dict.fromkeys(before, 1000)
    plan = balanced(before, [1, 2, 3], sizes)
    load = loads(applied(before, plan), sizes)
    assert max(load.values()) - min(load.values()) <= 1000
    assert sum(set(replicas) != set(before[each].replicas) for each, replicas in plan.items()) == 8


@given(
    st.lists(st.permutations([1, 2, 3, 4]).map(lambda order: tuple(order[:2])), min_size=1, max_size=30),
    st.lists(st.integers(0, 10_000), min_size=30, max_size=30),
)
def test_balance_never_makes_it_worse(replicas: list[tuple[int, ...]], bytes_: list[int]) -> None:
    before = states(*replicas)
    sizes = dict(zip(before, bytes_, strict=False))
    after = applied(before, balanced(before, [1, 2, 3, 4], sizes))
    assert all(len(set(each)) == 2 for each in after.values())
    brokers = [1, 2, 3, 4]
    old, new = loads(current(before), sizes), loads(after, sizes)
    assert max(new[broker] for broker in brokers) <= max(old[broker] for broker in brokers) + len(replicas)


def test_leaders_are_balanced_without_a_copy() -> None:
    before = states(*[(1, 2, 3)] * 9)
    after = applied(before, leaders_balanced(before, [1, 2, 3]))
    assert Counter(replicas[0] for replicas in after.values()) == {1: 3, 2: 3, 3: 3}
    assert all(set(replicas) == {1, 2, 3} for replicas in after.values())


def test_a_plan_is_read_as_it_was_written() -> None:
    plan = {("a", 0): (1, 2), ("b", 3): (2,)}
    assert plan_in(json.dumps(document(plan)), "file") == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"partitions": []}',
        '{"partitions": [{"topic": "a", "partition": 0}]}',
        '{"partitions": [{"topic": "a", "partition": "0", "replicas": [1]}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/data"]}]}',
        '{"partitions": [' + ", ".join(['{"topic": "a", "partition": 0, "replicas": [1]}'] * 2) + "]}",
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_plan_is_refused_by_name(text: str) -> None:
    with pytest.raises(ToolError, match=r"plan\.json"):
        plan_in(text, "plan.json")


@pytest.mark.parametrize("text", ["", "{}", '{"topics": []}', '{"topics": [{"topic": 1}]}', '{"topics": "a"}'])
def test_a_file_that_names_no_topics_is_refused_by_name(text: str) -> None:
    with pytest.raises(ToolError, match=r"topics\.json"):
        topics_in(text, "topics.json")
