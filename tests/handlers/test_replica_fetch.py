"""Fetches of followers: what they say, what they are told, and that both ways of serving them are the same."""

import pytest

from moldau.broker.dispatch import Introduction
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.handlers.conftest import World
from tests.handlers.replicated import FETCH_VERSION, Replicated, at, only, turns

FETCH = 1
OLD_FETCH_VERSION = 12
STRANGERS = 500
SESSION_ID_END = 4 + 4 + 1 + 4 + 2 + 4
"""Size, correlation id, tags, throttle time, error code, session id: up to here answers may differ."""


@pytest.fixture
def cluster(world: World) -> Replicated:
    return Replicated(world)


def test_a_follower_gets_what_is_not_committed_yet_and_commits_it_by_asking_on(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)

    async def test() -> None:
        result = only(await cluster.replica_fetch(2, at(topic_id, 0)))
        assert (len(result.records or b""), result.high_watermark) == (cluster.partition("t").log.size_bytes, 0)
        await cluster.replica_fetch(2, at(topic_id, 3, last_epoch=0))
        assert cluster.partition("t").high_watermark == 3

    cluster.run(test)


def test_only_what_has_grown_is_in_an_answer(cluster: Replicated) -> None:
    quiet, busy = cluster.create("quiet", 1, 2), cluster.create("busy", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(quiet, 0), at(busy, 0))
        cluster.world.produce("busy", 1)
        response = await cluster.replica_fetch(2)
        assert [topic.topic_id for topic in response.responses] == [busy]
        assert (await cluster.replica_fetch(2)).responses == [], "it was sent; the follower has not said that it has it"

    cluster.run(test)


def test_a_waiting_fetch_is_answered_when_something_is_appended(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        waiting = cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        await turns()
        assert not waiting.done()
        cluster.world.produce("t", 1)
        await turns()
        assert only(waiting.result()).records

    cluster.run(test)


def test_the_next_request_of_a_session_has_the_one_before_answered(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        waiting = cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        await turns()
        assert waiting.result().responses == []

    cluster.run(test)


def test_how_far_is_committed_is_told_alone_when_a_wait_ends(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2, 3)
    cluster.world.produce("t", 1)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        assert (await cluster.replica_fetch(2, at(topic_id, 1, last_epoch=0))).responses == [], "3 does not have it yet"
        await cluster.replica_fetch(3, at(topic_id, 1, last_epoch=0))
        told = only(await cluster.replica_fetch(2))
        assert (told.high_watermark, told.records) == (1, b"")
        assert (await cluster.replica_fetch(2)).responses == []

    cluster.run(test)


def test_a_deleted_beginning_is_told(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 3, last_epoch=0))
        await cluster.replica_fetch(2)
        waiting = cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        cluster.partition("t").delete_records(2)
        cluster.world.produce("t", 1)
        await turns()
        assert only(waiting.result()).log_start_offset == 2

    cluster.run(test)


def test_a_follower_that_went_another_way_is_told_where_they_part(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)

    async def test() -> None:
        result = only(await cluster.replica_fetch(2, at(topic_id, 9, last_epoch=0)))
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (0, 3)
        assert cluster.partition("t").followers[2].log_end_offset == -1, "what it has is not ours"
        assert only(await cluster.replica_fetch(2, at(topic_id, 3, last_epoch=0))).error_code == 0

    cluster.run(test)


@pytest.mark.parametrize(
    ("position", "error"),
    [
        ({"offset": 0, "epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 7}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"offset": 1, "last_epoch": 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_an_error_leaves_the_session_until_it_is_named_again(
    cluster: Replicated, position: dict[str, int], error: ErrorCode
) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 1)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 1, last_epoch=0))
        assert only(await cluster.replica_fetch(2, at(topic_id, **position))).error_code == error
        cluster.world.produce("t", 1)
        assert (await cluster.replica_fetch(2)).responses == []
        assert only(await cluster.replica_fetch(2, at(topic_id, 1, last_epoch=0))).records

    cluster.run(test)


def test_a_partition_that_is_led_elsewhere_by_now_is_told_at_once(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        waiting = cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        cluster.world.services.replicas.remove("t", 0)
        await turns()
        assert only(waiting.result()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.run(test)


def test_what_is_forgotten_is_not_served(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        await cluster.replica_fetch(2, forgotten=[ForgottenTopic(topic_id=topic_id, partitions=[0])])
        cluster.world.produce("t", 1)
        assert (await cluster.replica_fetch(2)).responses == []

    cluster.run(test)


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_start_of_a_broker_that_is_not_registered_is_refused_and_changes_nothing(
    cluster: Replicated, difference: int
) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 1)
    registered = cluster.world.image.brokers[2].epoch

    async def test() -> None:
        first = await cluster.replica_fetch(2, at(topic_id, 0))
        state = ReplicaState(replica_id=2, replica_epoch=registered + difference)
        other = FetchRequest(replica_state=state, session_epoch=0, topics=[at(topic_id, 1, last_epoch=0)])
        assert only(await cluster.begin(other, FETCH_VERSION)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        follower = cluster.partition("t").followers[2]
        assert (follower.broker_epoch, follower.log_end_offset) == (registered, 0)
        session = cluster.world.services.fetch_sessions.of_replicas.of(2)
        assert session is not None
        assert session.id == first.session_id, "the session of the broker itself goes on"

    cluster.run(test)


def test_a_fetch_that_does_not_say_which_start_it_is_of_does_not_vouch_for_records(cluster: Replicated) -> None:
    cluster.create("t", 1, 2)
    cluster.world.produce("t", 1)

    async def test() -> None:
        partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        await cluster.begin(FetchRequest(replica_id=2, topics=topics), OLD_FETCH_VERSION)
        assert cluster.partition("t").high_watermark == 0

    cluster.run(test)


def test_who_is_no_broker_leaves_nothing_behind(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 1)

    async def test() -> None:
        for replica_id in range(1000, 1000 + STRANGERS):
            state = ReplicaState(replica_id=replica_id, replica_epoch=replica_id)
            request = FetchRequest(replica_state=state, max_wait_ms=60_000, topics=[at(topic_id, 0)])
            response = await cluster.begin(request, FETCH_VERSION)
            assert response.session_id == 0
            assert only(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert len(cluster.world.services.fetch_sessions.of_replicas) == 0
        assert not cluster.partition("t").replica_waiters

    cluster.run(test)


def test_the_session_of_a_broker_that_left_is_gone_and_its_fetch_is_answered(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        waiting = cluster.begin(cluster.replica_request(2, max_wait_ms=60_000), FETCH_VERSION)
        await cluster.world.metadata._store.delete("/brokers/ids/2")
        await cluster.world.metadata.refresh()
        await turns()
        assert waiting.done()
        assert len(cluster.world.services.fetch_sessions.of_replicas) == 0
        assert not cluster.partition("t").replica_waiters

    cluster.run(test)


def test_a_fetch_without_a_session_whose_connection_is_gone_leaves_nothing_behind(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        state = ReplicaState(replica_id=2, replica_epoch=cluster.world.image.brokers[2].epoch)
        request = FetchRequest(
            replica_state=state, max_wait_ms=60_000, min_bytes=1, session_epoch=-1, topics=[at(topic_id, 0)]
        )
        waiting = cluster.begin(request, FETCH_VERSION)
        await turns()
        assert cluster.partition("t").replica_waiters
        waiting.cancel()
        await turns()
        assert not cluster.partition("t").replica_waiters

    cluster.run(test)


def test_a_request_out_of_turn_is_refused(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        await cluster.replica_fetch(2, at(topic_id, 0))
        cluster.replica_request(2)  # gets lost
        response = await cluster.replica_fetch(2)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    cluster.run(test)


def test_the_rest_comes_with_the_next_answers_when_it_is_too_much_for_one(cluster: Replicated) -> None:
    topics = [cluster.create(name, 1, 2) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        cluster.world.produce(name, 1)

    async def test() -> None:
        first = await cluster.replica_fetch(2, *(at(each, 0) for each in topics), max_bytes=1)
        assert with_records(first) == topics[:1], "one batch, whatever its size"
        assert with_records(await cluster.replica_fetch(2)) == topics[1:]

    cluster.run(test)


def test_both_ways_of_serving_are_the_same_to_the_byte(cluster: Replicated) -> None:
    """Followers 2 and 3 send the same; 3 does so over a connection whose requests are always read as messages."""
    topics = [cluster.create(name, 1, 2, 3, 4) for name in ("a", "b")]
    cluster.peers[3].introductions = NoMemory()

    async def ask(*named: FetchTopic, max_wait_ms: int = 0) -> None:
        requests = {each: cluster.replica_request(each, *named, max_wait_ms=max_wait_ms) for each in (2, 3)}
        answers = {each: cluster.send(each, request, FETCH_VERSION) for each, request in requests.items()}
        if max_wait_ms:
            cluster.world.produce("b", 2)
        frames = {each: await answer for each, answer in answers.items()}
        for each, frame in frames.items():
            assert cluster.received(each, FETCH, FETCH_VERSION, frame).error_code == 0
        bodies = [frame[:4] + frame[SESSION_ID_END:] for frame in frames.values()]
        assert bodies[0] == bodies[1]

    async def test() -> None:
        await ask(at(topics[0], 0), at(topics[1], 0))
        cluster.world.produce("a", 1)
        cluster.world.produce("b", 1000)
        await ask()
        await ask(at(topics[0], 1, last_epoch=0), at(topics[1], 1000, last_epoch=0))
        await ask()
        await ask(max_wait_ms=60_000)
        await ask(at(topics[0], 5, last_epoch=0))
        await ask(at(topics[0], 1, epoch=7))
        await ask(at(b"?" * 16, 1))

    cluster.run(test)


def with_records(response: FetchResponse) -> list[bytes]:
    return [topic.topic_id for topic in response.responses if topic.partitions[0].records]


class NoMemory(dict[tuple[int, int], Introduction]):
    """A connection that knows no header again."""

    def __setitem__(self, key: tuple[int, int], value: Introduction) -> None:
        pass
