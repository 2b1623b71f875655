"""Produce, Fetch and ListOffsets where a partition has several replicas."""

import asyncio
from dataclasses import replace

import pytest

from moldau.cluster.changes import StateChange
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.replication.partition import Partition
from tests.handlers.conftest import World
from tests.handlers.replicated import PRODUCE_VERSION, Replicated, at, turns

PRODUCE = 0
LATEST, EARLIEST = -1, -2


@pytest.fixture
def cluster(world: World) -> Replicated:
    return Replicated(world)


def follow_leader(cluster: Replicated, name: str, *, leader: int, isr: tuple[int, ...] = ()) -> None:
    """The store says that another leads, or that others are in sync."""
    topic = cluster.world.image.topics[name]
    state = topic.partitions[0]
    changed = state._replace(
        leader=leader, leader_epoch=state.leader_epoch + (leader != state.leader), isr=isr or state.isr
    )
    cluster.world.run(cluster.world.metadata.write([StateChange(name, topic.topic_id, 0, changed)]))


async def follow_leader_now(cluster: Replicated, name: str, *, leader: int, isr: tuple[int, ...] = ()) -> None:
    topic = cluster.world.image.topics[name]
    state = topic.partitions[0]
    changed = state._replace(
        leader=leader, leader_epoch=state.leader_epoch + (leader != state.leader), isr=isr or state.isr
    )
    await cluster.world.metadata.write([StateChange(name, topic.topic_id, 0, changed)])


# Produce, the handler's way and the quick one


@pytest.mark.parametrize("quick", [False, True])
def test_acks_all_is_answered_at_the_high_watermark(cluster: Replicated, quick: bool) -> None:
    topic_id = cluster.create("t", 1, 2, 3)

    async def test() -> None:
        end = 0
        if quick:
            end = await learned(cluster, topic_id)
        answer = cluster.send(9, cluster.produce_request(topic_id, cluster.batch(2)), PRODUCE_VERSION)
        await cluster.replica_fetch(2, at(topic_id, end + 2, last_epoch=0))
        await turns()
        assert not answer.done()
        await cluster.replica_fetch(3, at(topic_id, end + 2, last_epoch=0))
        await turns()
        assert result_of(cluster, answer) == (ErrorCode.NONE, end)

    cluster.run(test)


@pytest.mark.parametrize("quick", [False, True])
def test_a_write_whose_leader_resigns_is_told_so_and_by_whom_it_is_led(cluster: Replicated, quick: bool) -> None:
    topic_id = cluster.create("t", 1, 2, 3)

    async def test() -> None:
        if quick:
            await learned(cluster, topic_id)
        answer = cluster.send(9, cluster.produce_request(topic_id, cluster.batch()), PRODUCE_VERSION)
        await follow_leader_now(cluster, "t", leader=2)
        await turns()
        message = cluster.received(9, PRODUCE, PRODUCE_VERSION, answer.result())
        (refused,) = message.responses[0].partition_responses
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (2, 1)
        assert [(each.node_id, each.host) for each in message.node_endpoints] == [(2, "host-2")]

    cluster.run(test)


@pytest.mark.parametrize("quick", [False, True])
def test_a_write_that_is_not_committed_in_time_is_told_so(cluster: Replicated, quick: bool) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        if quick:
            await learned(cluster, topic_id, timeout_ms=1)
        answer = cluster.send(9, cluster.produce_request(topic_id, cluster.batch(), timeout_ms=1), PRODUCE_VERSION)
        await asyncio.wait([answer], timeout=10)
        assert result_of(cluster, answer)[0] == ErrorCode.REQUEST_TIMED_OUT
        end = cluster.partition("t").log.log_end_offset
        await cluster.replica_fetch(2, at(topic_id, end, last_epoch=0))
        assert cluster.partition("t").high_watermark == end, "it is there all the same"

    cluster.run(test)


@pytest.mark.parametrize("quick", [False, True])
def test_a_write_whose_replicas_fall_out_of_sync_is_told_so(cluster: Replicated, quick: bool) -> None:
    topic_id = cluster.create("t", 1, 2)
    partition = cluster.partition("t")
    partition.configure(replace(partition.log.config, min_insync_replicas=2))

    async def test() -> None:
        if quick:
            await learned(cluster, topic_id)
        answer = cluster.send(9, cluster.produce_request(topic_id, cluster.batch()), PRODUCE_VERSION)
        await follow_leader_now(cluster, "t", leader=1, isr=(1,))
        await turns()
        assert result_of(cluster, answer)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        refused = cluster.send(9, cluster.produce_request(topic_id, cluster.batch()), PRODUCE_VERSION)
        assert result_of(cluster, refused)[0] == ErrorCode.NOT_ENOUGH_REPLICAS

    cluster.run(test)


def test_a_repeated_batch_that_is_not_committed_waits_like_the_first(cluster: Replicated) -> None:
    topic_id = cluster.create("t", 1, 2)

    async def test() -> None:
        request = cluster.produce_request(topic_id, cluster.batch(sequence=0))
        first, second = (cluster.send(9, request, PRODUCE_VERSION) for _ in range(2))
        await turns()
        assert not first.done()
        assert not second.done()
        await cluster.replica_fetch(2, at(topic_id, 1, last_epoch=0))
        await turns()
        assert result_of(cluster, first) == result_of(cluster, second) == (ErrorCode.NONE, 0)
        assert cluster.partition("t").log.log_end_offset == 1

    cluster.run(test)


def test_one_partition_that_fails_does_not_hurt_the_others(cluster: Replicated) -> None:
    ours, theirs = cluster.create("ours", 1, 2), cluster.create("theirs", 2, 1)

    async def test() -> None:
        topics = [
            TopicProduceData(topic_id=each, partition_data=[PartitionProduceData(index=0, records=cluster.batch())])
            for each in (ours, theirs)
        ]
        answer = cluster.begin(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), PRODUCE_VERSION)
        await cluster.replica_fetch(2, at(ours, 1, last_epoch=0))
        response = await answer
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert response.responses[1].partition_responses[0].current_leader.leader_id == 2

    cluster.run(test)


async def learned(cluster: Replicated, topic_id: bytes, timeout_ms: int = 30_000) -> int:
    """Have one request served, so that those like it are served from its bytes; where the log ends then."""
    answer = cluster.send(9, cluster.produce_request(topic_id, cluster.batch(), timeout_ms), PRODUCE_VERSION)
    for replica in cluster.partition("t").replicas[1:]:
        await cluster.replica_fetch(replica, at(topic_id, 1, last_epoch=0))
    await turns()
    assert answer.done()
    (introduction,) = cluster.peers[9].introductions.values()
    assert introduction.repeats is not None
    assert introduction.repeats._known, "the quick way is not taken"  # type: ignore[attr-defined]
    return 1


def result_of(cluster: Replicated, answer: "asyncio.Future[bytes]") -> tuple[int, int]:
    (result,) = cluster.received(9, PRODUCE, PRODUCE_VERSION, answer.result()).responses[0].partition_responses
    return result.error_code, result.base_offset


# Fetch


def consume(cluster: Replicated, topic: str, offset: int, version: int, epoch: int = -1) -> object:
    known = cluster.world.image.topics[topic]
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=epoch)
    named = FetchTopic(topic=topic, topic_id=known.topic_id, partitions=[asked])
    return cluster.world.ask(FetchRequest(max_bytes=1000, topics=[named]), version)


def test_a_consumer_beyond_what_is_committed_gets_nothing_and_no_error(cluster: Replicated) -> None:
    cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)
    for offset in (0, 2, 3):
        (result,) = consume(cluster, "t", offset, 17).responses[0].partitions  # type: ignore[attr-defined]
        assert (result.error_code, result.records, result.high_watermark) == (0, b"", 0)


def test_followers_are_read_from_by_those_who_may(cluster: Replicated) -> None:
    cluster.create("t", 2, 1)
    replica = cluster.world.services.replicas.replica("t", 0)
    assert replica is not None
    assert not isinstance(replica, Partition)
    replica.log.append_as_follower(cluster.batch(2), cluster.world.clock.now_ms())
    replica.high_watermark = 1
    (result,) = consume(cluster, "t", 0, 11).responses[0].partitions  # type: ignore[attr-defined]
    assert (result.error_code, result.high_watermark) == (0, 1)
    (result,) = consume(cluster, "t", 0, 10).responses[0].partitions  # type: ignore[attr-defined]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_with_an_old_epoch_is_told_who_leads(cluster: Replicated) -> None:
    cluster.create("t", 1, 2)
    follow_leader(cluster, "t", leader=2)
    answer = consume(cluster, "t", 0, 17, epoch=0)
    (result,) = answer.responses[0].partitions  # type: ignore[attr-defined]
    assert result.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 1)
    assert [each.host for each in answer.node_endpoints] == ["host-2"]  # type: ignore[attr-defined]


# ListOffsets


def offsets(cluster: Replicated, timestamp: int, version: int, replica_id: int = -1) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer = cluster.world.ask(ListOffsetsRequest(replica_id=replica_id, topics=[asked]), version)
    result: ListOffsetsPartitionResponse = answer.topics[0].partitions[0]
    return result


def test_a_follower_learns_the_end_and_a_consumer_what_is_committed(cluster: Replicated) -> None:
    cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)
    assert offsets(cluster, LATEST, 9).offset == 0
    assert offsets(cluster, LATEST, 9, replica_id=2).offset == 3


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_new_leader_does_not_tell_an_end_that_may_be_too_low(
    cluster: Replicated, version: int, code: ErrorCode
) -> None:
    topic_id = cluster.create("t", 1, 2)
    cluster.world.produce("t", 3)
    follow_leader(cluster, "t", leader=2)
    follow_leader(cluster, "t", leader=1)
    assert offsets(cluster, LATEST, version).error_code == code
    assert offsets(cluster, EARLIEST, version).error_code == 0
    cluster.run(lambda: caught_up(cluster, topic_id))
    assert offsets(cluster, LATEST, version).offset == 3


async def caught_up(cluster: Replicated, topic_id: bytes) -> None:
    await cluster.replica_fetch(2, at(topic_id, 3, epoch=2, last_epoch=0))


# Partitions that only others have


@pytest.mark.parametrize("version", [0, 12, PRODUCE_VERSION])
def test_a_write_to_a_partition_that_is_elsewhere_is_refused_as_not_led(cluster: Replicated, version: int) -> None:
    topic_id = cluster.create("t", 2, 3)
    data = PartitionProduceData(index=0, records=cluster.batch())
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])
    answer = cluster.world.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version)
    (refused,) = answer.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [0, 12, 17])
def test_a_read_of_a_partition_that_is_elsewhere_is_refused_as_not_led(cluster: Replicated, version: int) -> None:
    cluster.create("t", 2, 3)
    (refused,) = consume(cluster, "t", 0, version).responses[0].partitions  # type: ignore[attr-defined]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_offsets_of_a_partition_that_is_elsewhere_are_refused_as_not_led(cluster: Replicated) -> None:
    cluster.create("t", 2, 3)
    assert offsets(cluster, LATEST, 9).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[epoch])])
    assert cluster.world.ask(asked).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_of_a_partition_that_is_elsewhere_are_deleted_by_its_leader_only(cluster: Replicated) -> None:
    cluster.create("t", 2, 3)
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in (0, 1)]
    answer = cluster.world.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)]))
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
