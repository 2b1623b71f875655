"""A request passes one gate: what was learnt under one version of the policy is not used under another."""

import asyncio
from typing import Any

import pytest

from moldau.broker.dispatch import Answer, Dispatcher, Peer
from moldau.protocol import codec
from moldau.protocol.errors import ErrorCode, ProtocolError
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.k16_list_groups import ListGroupsRequest
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.schema import Message
from moldau.requests.authorization import ANONYMOUS, CLUSTER, CLUSTER_ACTION, READ, TOPIC, WRITE, Principal
from moldau.requests.context import RequestContext
from moldau.requests.pending import PendingAnswer
from tests.broker.raw import request_frame
from tests.handlers.conftest import World
from tests.handlers.denying import Deny
from tests.handlers.replicated import FETCH_VERSION, PRODUCE_VERSION, Replicated, at

PRODUCER = 9
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def cluster(world: World) -> Replicated:
    return Replicated(world)


async def _ask(cluster: Replicated, peer: int, request: Message, version: int) -> Any:
    answer = await cluster.send(peer, request, version)
    return cluster.received(peer, request.api_key, version, answer)


def _fetch(topic_id: bytes, offset: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics)


def _repeats_of(cluster: Replicated, peer: int) -> Any:
    (known,) = cluster.peers[peer].introductions.values()
    return known.repeats


def test_a_producer_that_may_write_no_more_is_refused_also_where_it_was_known(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1)
    policy, partition = cluster.world.services.policy, cluster.partition("t")

    async def produce() -> int:
        request = cluster.produce_request(topic_id, cluster.batch())
        response = await _ask(cluster, PRODUCER, request, PRODUCE_VERSION)
        code: int = response.responses[0].partition_responses[0].error_code
        return code

    async def test() -> None:
        assert [await produce() for _ in range(3)] == [0] * 3
        assert _repeats_of(cluster, PRODUCER)._known
        policy.authorize_by(Deny((WRITE, TOPIC)))
        assert [await produce() for _ in range(3)] == [DENIED] * 3
        assert not _repeats_of(cluster, PRODUCER)._known
        assert partition.log.log_end_offset == 3
        policy.authorize_by(Deny())
        assert [await produce() for _ in range(3)] == [0] * 3
        assert _repeats_of(cluster, PRODUCER)._known

    cluster.run(test)


def test_a_consumer_that_may_read_no_more_is_refused_also_where_it_was_known(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1)
    cluster.world.produce("t", 3)
    policy = cluster.world.services.policy

    async def fetch(offset: int) -> tuple[int, bool]:
        response = await _ask(cluster, PRODUCER, _fetch(topic_id, offset), FETCH_VERSION)
        ((result,),) = [topic.partitions for topic in response.responses]
        return result.error_code, bool(result.records)

    async def test() -> None:
        assert [await fetch(0) for _ in range(3)] == [(0, True)] * 3
        policy.authorize_by(Deny((READ, TOPIC)))
        assert [await fetch(0) for _ in range(3)] == [(DENIED, False)] * 3
        policy.authorize_by(Deny())
        assert [await fetch(0) for _ in range(3)] == [(0, True)] * 3

    cluster.run(test)


def test_a_follower_that_may_fetch_no_more_is_refused_also_where_it_was_known(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)
    policy, partition = cluster.world.services.policy, cluster.partition("t")

    async def fetch(offset: int) -> list[int]:
        request = cluster.replica_request(2, at(topic_id, offset))
        response = await _ask(cluster, 2, request, FETCH_VERSION)
        return [each.error_code for topic in response.responses for each in topic.partitions]

    async def test() -> None:
        cluster.world.produce("t", 1)
        for _ in range(3):
            assert await fetch(0) == [0]
        policy.authorize_by(Deny((CLUSTER_ACTION, CLUSTER)))
        for _ in range(2):
            assert await fetch(1) == [DENIED]
        assert partition.high_watermark == 0

    cluster.run(test)


class Observed:
    """Remembers who was seen."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.principals: set[Principal] = set()

    def request_begins(self, api_key: int, context: RequestContext) -> None:
        self.begun.append(api_key)
        self.principals.add(context.principal)

    def request_ends(self, api_key: int, _context: RequestContext) -> None:
        self.ended.append(api_key)


def test_who_watches_sees_every_request_begin_and_end(cluster: Replicated) -> None:
    topic_id, policy, observed = cluster.create("t", 1), cluster.world.services.policy, Observed()
    creation = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])

    async def produce() -> None:
        await cluster.send(PRODUCER, cluster.produce_request(topic_id, cluster.batch()), PRODUCE_VERSION)

    async def test() -> None:
        await produce()
        await produce()
        policy.observe_by(observed)
        await produce()
        await produce()
        answer = cluster.send(PRODUCER, creation, 7)
        assert (observed.begun, observed.ended) == ([0, 0, 19], [0, 0])
        await answer
        assert observed.ended == [0, 0, 19]
        policy.observe_by(None)
        await produce()
        await produce()
        assert observed.begun == [0, 0, 19]
        known = cluster.peers[PRODUCER].introductions.values()
        assert any(each.repeats is not None for each in known)

    cluster.run(test)


def test_a_request_that_fails_or_whose_client_goes_ends_too(
    cluster: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id, observed = cluster.create("t", 1), Observed()
    dispatcher, peer = cluster.dispatcher, Peer("PLAINTEXT")
    cluster.world.services.policy.observe_by(observed)

    def send(request: Message, version: int) -> Answer:
        frame = request_frame(request.api_key, version, codec.encode(request, version))
        return dispatcher.dispatch(memoryview(frame)[4:], peer)

    async def test() -> None:
        creation = CreateTopicsRequest(topics=[CreatableTopic(name="u", num_partitions=1, replication_factor=1)])
        gone = send(creation, 7)
        assert isinstance(gone, PendingAnswer)
        gone.cancel()
        assert (observed.begun, observed.ended) == ([19], [19])
        monkeypatch.setattr(cluster.world.groups, "shards", _broken)
        send(ListGroupsRequest(), 1)
        assert observed.ended == [19, 16]
        silent = cluster.produce_request(topic_id, b"no batch")
        silent.acks = 0  # type: ignore[misc]  # frozen for mypy only
        with pytest.raises(ProtocolError):
            send(silent, PRODUCE_VERSION)
        assert (observed.begun, observed.ended) == ([19, 16, 0], [19, 16, 0])
        monkeypatch.setattr(cluster.world.metadata, "create_topic", _broken)
        failing = send(creation, 7)
        assert isinstance(failing, PendingAnswer)
        done = asyncio.Event()
        failing.when_done(lambda _: done.set())
        await done.wait()
        assert failing.failed
        assert observed.ended == [19, 16, 0, 19]

    cluster.run(test)


def _broken(*_arguments: object, **_named: object) -> None:
    raise RuntimeError("broken for a test")


def test_a_request_is_of_whom_its_connection_has_proved_to_be(world: World) -> None:
    dispatcher, peer, observed = Dispatcher(world.services), Peer("PLAINTEXT"), Observed()
    world.services.policy.observe_by(observed)
    frame = memoryview(request_frame(16, 1, codec.encode(ListGroupsRequest(), 1)))[4:]
    dispatcher.dispatch(frame, peer)
    assert observed.principals == {ANONYMOUS}
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    alice = Principal("User", "alice")
    peer.authenticated(alice)
    dispatcher.dispatch(frame, peer)
    assert observed.principals == {ANONYMOUS, alice}
