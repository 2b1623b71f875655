"""Burrow's rules, over commits of which all is known."""

import tracemalloc

import pytest

from moldau.core.group_status import COMMITS_MAX, STOPPED_MS_MIN, Commit, Rule, Window, rule_for

STEP_MS = 15_000


def commits(*offsets_and_lags: tuple[int, int]) -> list[Commit]:
    return [Commit(offset, number * STEP_MS, lag) for number, (offset, lag) in enumerate(offsets_and_lags)]


MOVING = [(number * 10, 5) for number in range(COMMITS_MAX)]


@pytest.mark.parametrize(
    ("seen", "lag", "later_ms", "rule"),
    [
        ([], 5, 0, Rule.OK),
        (MOVING, 0, 10 * STOPPED_MS_MIN, Rule.OK),
        ([(10, 9)], 9, 0, Rule.OK),
        ([(10, 9)], 9, STOPPED_MS_MIN + 1, Rule.STOP),
        ([(0, 9), (10, 8)], 8, STOPPED_MS_MIN, Rule.OK),
        ([(0, 9), (10, 8)], 8, STOPPED_MS_MIN + 1, Rule.STOP),
        (MOVING, 5, (COMMITS_MAX - 1) * STEP_MS, Rule.WARN),
        (MOVING, 5, (COMMITS_MAX - 1) * STEP_MS + 1, Rule.STOP),
        ([(10, 9), (5, 14), (20, 3)], 3, 0, Rule.REWIND),
        ([(10, 9), (5, 14), (20, 0)], 3, 0, Rule.OK),
        ([(10, 1), (10, 2), (10, 3)], 3, 0, Rule.STALL),
        ([(number, number + 1) for number in range(COMMITS_MAX)], 99, 0, Rule.WARN),
        ([(number, number + 1) for number in range(COMMITS_MAX - 1)], 99, 0, Rule.OK),
        ([(number, 99 - number) for number in range(COMMITS_MAX)], 90, 0, Rule.OK),
    ],
)
def test_the_first_rule_that_fires_is_told(seen: list[tuple[int, int]], lag: int, later_ms: int, rule: Rule) -> None:
    of = commits(*seen)
    now_ms = (of[-1].timestamp_ms if of else 0) + later_ms
    assert rule_for(of, [lag], now_ms) is rule


def test_a_consumer_without_anything_to_read_until_now_has_not_stopped() -> None:
    window = Window()
    hour_ms = 3_600_000
    window.saw(10, 0, 0)
    window.saw(10, 0, 3)
    assert window.rule(hour_ms) is Rule.OK
    for _ in range(COMMITS_MAX):
        window.saw(10, 0, 3)
    assert window.rule(hour_ms) is Rule.STOP


def test_a_commit_that_is_seen_twice_is_one_commit() -> None:
    window = Window()
    for _ in range(3):
        window.saw(10, 7, 3)
    assert len(window.commits) == 1


def test_only_the_last_commits_and_lags_are_kept_and_in_little_memory() -> None:
    """A scrape tells 50,000 offsets: with an object for each number their windows took 165 MB."""
    tracemalloc.start()
    try:
        window = Window()
        for number in range(3 * COMMITS_MAX):
            window.saw(2**40 + number, 2**41 + number, 2**30)
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 1_000
    assert [each.offset for each in window.commits] == [2**40 + 2 * COMMITS_MAX + each for each in range(COMMITS_MAX)]


def test_every_error_is_as_bad_as_another() -> None:
    assert [rule.severity for rule in Rule] == [0, 1, 2, 2, 2]
