import pytest

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.follower_progress import FollowerProgress

LAG_MS = 1000


def fetched(follower: FollowerProgress, offset: int, leader_end: int, now_ms: int, broker_epoch: int = 1) -> bool:
    return follower.fetched(offset, 0, broker_epoch, leader_end, now_ms)


def test_one_that_reaches_the_end_is_not_behind() -> None:
    follower = FollowerProgress(2, 0)
    assert follower.is_behind(LAG_MS + 1, LAG_MS)
    fetched(follower, 10, 10, 5)
    assert not follower.is_behind(1_000_000, LAG_MS)


def test_it_is_behind_since_the_first_append_that_it_does_not_have() -> None:
    follower = FollowerProgress(2, 0)
    fetched(follower, 10, 10, 5)
    follower.leader_appended(2000)
    follower.leader_appended(2900)
    assert not follower.is_behind(3000, LAG_MS)
    assert follower.is_behind(3001, LAG_MS)


def test_one_that_reaches_what_the_end_was_at_its_last_fetch_is_behind_since_that_fetch() -> None:
    follower = FollowerProgress(2, 0)
    for round_number in range(1, 20):
        end = round_number * 10
        fetched(follower, end - 10, end, round_number * 600)
    assert follower.behind_since_ms == 18 * 600
    assert not follower.is_behind(19 * 600, LAG_MS)


def test_one_that_falls_back_further_and_further_is_behind() -> None:
    follower = FollowerProgress(2, 0)
    for round_number in range(1, 20):
        fetched(follower, round_number, round_number * 10, round_number * 600)
    assert follower.is_behind(19 * 600, LAG_MS)


def test_whether_its_end_moved() -> None:
    follower = FollowerProgress(2, 0)
    assert fetched(follower, 0, 5, 1)
    assert not fetched(follower, 0, 5, 2)
    assert fetched(follower, 3, 5, 3)


def test_another_start_of_the_broker_is_unknown_until_it_says_where_it_is() -> None:
    follower = FollowerProgress(2, 0)
    fetched(follower, 10, 10, 5)
    fetched(follower, 4, 10, 100, broker_epoch=2)
    assert (follower.log_end_offset, follower.behind_since_ms) == (4, 100)


def test_an_earlier_start_of_the_broker_is_refused() -> None:
    follower = FollowerProgress(2, 0)
    fetched(follower, 4, 10, 100, broker_epoch=2)
    with pytest.raises(ApiError) as refused:
        fetched(follower, 10, 10, 110, broker_epoch=1)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower.log_end_offset == 4
