"""What a broker remembers of its consumers' fetches is bounded; who finds no place is served without."""

from random import Random

import pytest

from moldau.protocol.errors import ApiError, ErrorCode
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from moldau.requests.fetch_sessions import EVICTION_MS, FetchSessions
from moldau.testing.virtual_loop import virtual_loop

VERSION = 12
SLOTS = 3
PARTITIONS_MAX = 100


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(SLOTS, Random(7), virtual_loop(), PARTITIONS_MAX)


def asking(count: int, *, session: int = 0, epoch: int = 0, first: int = 0, forgotten: int = 0) -> FetchRequest:
    """Names `count` partitions from `first` on, and forgets as many from 0 on."""
    partitions = [FetchPartition(partition=first + each) for each in range(count)]
    gone = [ForgottenTopic(topic="t", partitions=list(range(forgotten)))] if forgotten else []
    topics = [FetchTopic(topic="t", partitions=partitions)]
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


def opened(sessions: FetchSessions, count: int, now_ms: int = 0) -> int:
    session = sessions.plan(asking(count), VERSION, now_ms).session
    assert session is not None
    return session.id


def test_who_has_too_many_partitions_is_served_without_a_session(sessions: FetchSessions) -> None:
    plan = sessions.plan(asking(PARTITIONS_MAX + 1), VERSION, 0)
    assert plan.session is None
    assert len(plan.wanted) == PARTITIONS_MAX + 1
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_the_partitions_of_all_sessions_together_are_bounded(sessions: FetchSessions) -> None:
    opened(sessions, 60)
    opened(sessions, 40)
    assert sessions.plan(asking(1), VERSION, 0).session is None
    assert sessions.partitions == PARTITIONS_MAX


def test_a_session_that_grows_too_large_ends_and_its_consumer_is_told(sessions: FetchSessions) -> None:
    opened(sessions, 60)
    growing = opened(sessions, 1)
    sessions.plan(asking(39, session=growing, epoch=1, first=1), VERSION, 0)
    with pytest.raises(ApiError) as refused:
        sessions.plan(asking(1, session=growing, epoch=2, first=40), VERSION, 0)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (1, 60)


def test_what_is_forgotten_or_ended_makes_room(sessions: FetchSessions) -> None:
    first, second = opened(sessions, 60), opened(sessions, 40)
    sessions.plan(asking(0, session=first, epoch=1, forgotten=50), VERSION, 0)
    assert sessions.partitions == 50
    sessions.plan(asking(0, session=second, epoch=-1), VERSION, 0)
    assert sessions.partitions == 10
    opened(sessions, 90)


def test_sessions_that_are_idle_for_long_give_their_place_to_new_ones(sessions: FetchSessions) -> None:
    opened(sessions, 60)
    opened(sessions, 40)
    opened(sessions, 100, now_ms=EVICTION_MS)
    assert (len(sessions), sessions.partitions) == (1, 100)
