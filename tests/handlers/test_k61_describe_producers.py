"""DescribeProducers."""

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from tests.handlers.conftest import World


def test_idempotent_producers_are_told_with_their_last_sequence(world: World) -> None:
    world.create("t", 2)
    world.produce("t", 3, partition=1, producer_id=42)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
    (topic,) = world.ask(request).topics
    idle, busy = topic.partitions
    assert (idle.error_code, idle.active_producers) == (0, [])
    (producer,) = busy.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (42, 0, 2)
    assert producer.last_timestamp == world.clock.now_ms()
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_unknown_partitions_and_bad_names_are_told(world: World) -> None:
    world.create("t")
    asked = [("t", 9), ("nope", 0), ("a/b", 0)]
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=[index]) for name, index in asked]
    )
    codes = [topic.partitions[0].error_code for topic in world.ask(request).topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [unknown, unknown, ErrorCode.INVALID_TOPIC_EXCEPTION]
