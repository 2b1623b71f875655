"""What each assignor promises, for any group."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.consumer.assignors import GroupAssignment, MemberSpec, assign_range, assign_uniform

A, B, C = (bytes([each]) * 16 for each in (1, 2, 3))
TOPICS = (A, B, C)


def member(*topics: bytes, owned: dict[bytes, set[int]] | None = None, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(frozenset(topics), {topic: frozenset(each) for topic, each in (owned or {}).items()}, instance_id)


def load(assignment: GroupAssignment, member_id: str) -> int:
    return sum(map(len, assignment[member_id].values()))


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    """Members with subscriptions of any kind and a valid assignment from an earlier, smaller cluster."""
    counts = {topic: draw(st.integers(1, 12)) for topic in TOPICS}
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    subscriptions = {name: frozenset(draw(st.sets(st.sampled_from(TOPICS)))) for name in names}
    owned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for topic, count in counts.items():
        for partition in range(draw(st.integers(0, count + 2))):
            owned[draw(st.sampled_from(names))].setdefault(topic, set()).add(partition)
    return {name: member(*subscriptions[name], owned=owned[name]) for name in names}, counts


def check_complete(assignment: GroupAssignment, members: dict[str, MemberSpec], counts: dict[bytes, int]) -> None:
    """Every partition of a topic with a subscriber goes to exactly one of them."""
    given_away = [(topic, each) for topics in assignment.values() for topic, some in topics.items() for each in some]
    wanted = {topic for spec in members.values() for topic in spec.topics}
    assert sorted(given_away) == sorted((topic, each) for topic in wanted for each in range(counts[topic]))
    assert all(set(topics) <= members[name].topics for name, topics in assignment.items())


@given(groups())
def test_uniform_gives_every_partition_to_one_subscriber(case: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    check_complete(assign_uniform(*case), *case)


@given(groups())
def test_range_gives_every_partition_to_one_subscriber(case: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    check_complete(assign_range(*case), *case)


@given(groups())
def test_uniform_leaves_no_move_that_would_balance_better(
    case: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, _ = case
    assignment = assign_uniform(*case)
    for owner, topics in assignment.items():
        for topic in topics:
            for other, spec in members.items():
                assert topic not in spec.topics or load(assignment, owner) - load(assignment, other) <= 1


@given(groups())
def test_uniform_has_nothing_to_change_the_second_time(case: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    members, counts = case
    once = assign_uniform(members, counts)
    again = {name: spec._replace(owned=once[name]) for name, spec in members.items()}
    assert assign_uniform(again, counts) == once


@given(st.integers(1, 8), st.integers(1, 40))
def test_uniform_moves_only_what_a_new_member_needs(size: int, partitions: int) -> None:
    before = assign_uniform({f"m{each}": member(A) for each in range(size)}, {A: partitions})
    members = {f"m{each}": member(A, owned={A: set(before[f"m{each}"].get(A, ()))}) for each in range(size)}
    after = assign_uniform({**members, "new": member(A)}, {A: partitions})
    moved = sum(len(before[name].get(A, frozenset()) - after[name].get(A, frozenset())) for name in before)
    assert moved == load(after, "new") == partitions // (size + 1)


def test_uniform_balances_subscriptions_that_differ() -> None:
    members = {"a": member(A), "b": member(A, B), "c": member(B, C)}
    assignment = assign_uniform(members, {A: 4, B: 4, C: 1})
    assert [load(assignment, name) for name in "abc"] == [3, 3, 3]


def test_range_cuts_topics_of_one_size_alike() -> None:
    assignment = assign_range({name: member(A, B) for name in "xyz"}, {A: 7, B: 7})
    assert assignment["x"] == {A: {0, 1, 2}, B: {0, 1, 2}}
    assert assignment["y"] == {A: {3, 4}, B: {3, 4}}
    assert assignment["z"] == {A: {5, 6}, B: {5, 6}}


def test_range_cuts_each_topic_among_its_own_subscribers() -> None:
    assignment = assign_range({"x": member(A, B), "y": member(A), "z": member(B, C)}, {A: 3, B: 2, C: 1})
    assert assignment == {"x": {A: {0, 1}, B: {0}}, "y": {A: {2}}, "z": {B: {1}, C: {0}}}


def test_range_puts_static_members_first_by_instance() -> None:
    members = {"a": member(A), "z": member(A, instance_id="i1"), "y": member(A, instance_id="i2")}
    assert assign_range(members, {A: 3}) == {"z": {A: {0}}, "y": {A: {1}}, "a": {A: {2}}}


def test_more_members_than_partitions_leave_some_idle() -> None:
    assignment = assign_uniform({name: member(A) for name in "abc"}, {A: 2})
    assert sorted(load(assignment, name) for name in "abc") == [0, 1, 1]


def test_a_group_without_members_or_topics_is_assigned_nothing() -> None:
    assert assign_uniform({}, {}) == assign_range({}, {}) == {}
    assert assign_uniform({"a": member()}, {}) == assign_range({"a": member()}, {}) == {"a": {}}
