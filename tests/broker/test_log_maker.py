"""A topic with very many partitions is made and deleted while others are served; nothing is told wrongly meanwhile."""

import asyncio

from moldau.broker.log_maker import AT_ONCE_MAX, LogMaker
from moldau.core.ids import TopicPartition
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from moldau.testing import BrokerInThread, broker
from tests.broker.raw import RawClient

LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS = 2, 19, 20
PARTITIONS = 8 * AT_ONCE_MAX
LATEST = -1


def create(client: RawClient, name: str, partitions: int = PARTITIONS) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


def delete(client: RawClient, name: str) -> None:
    answer = client.ask(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[name]), DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def codes(client: RawClient, name: str) -> set[int]:
    """What the partitions of a topic say."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(PARTITIONS)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=asked)])
    answer = client.ask(LIST_OFFSETS, 5, request, ListOffsetsResponse)
    return {each.error_code for each in answer.topics[0].partitions}


def test_every_partition_can_be_used_when_the_topic_is_said_to_be_made() -> None:
    with broker() as kafka, RawClient(kafka.bootstrap) as client:
        create(client, "large")
        assert codes(client, "large") == {ErrorCode.NONE}


def test_a_topic_can_be_made_again_while_its_predecessor_is_being_deleted() -> None:
    with broker() as kafka, RawClient(kafka.bootstrap) as client:
        for _ in range(3):
            create(client, "large")
            assert codes(client, "large") == {ErrorCode.NONE}
            delete(client, "large")
        assert codes(client, "large") == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_restart_finds_all_that_was_made() -> None:
    with broker() as kafka:
        with RawClient(kafka.bootstrap) as client:
            create(client, "large")
        _restart(kafka)
        with RawClient(kafka.bootstrap) as client:
            assert codes(client, "large") == {ErrorCode.NONE}


def _restart(kafka: BrokerInThread) -> None:
    kafka.stop()
    kafka.start()


def test_the_loop_goes_round_between_two_portions() -> None:
    rounds: list[int] = []
    settled: list[tuple[TopicPartition, int]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def count() -> None:
            rounds.append(len(rounds))
            if making_is_going_on():
                loop.call_soon(count)

        def making_is_going_on() -> bool:
            return len(settled) < 3 * AT_ONCE_MAX

        making = LogMaker(lambda each: settled.append((each, len(rounds))))
        made_at_once = [making.is_now(TopicPartition("t", index)) for index in range(4 * AT_ONCE_MAX)]
        assert made_at_once == [True] * AT_ONCE_MAX + [False] * 3 * AT_ONCE_MAX
        loop.call_soon(count)
        await making.made()

    asyncio.run(main())
    assert [each.partition for each, _ in settled] == list(range(AT_ONCE_MAX, 4 * AT_ONCE_MAX))
    assert len({at for _, at in settled}) == 3
