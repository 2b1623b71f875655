import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from moldau.records.batch import Record, build_batch
from tests.handlers.conftest import World

BY_ID = 13


@pytest.mark.parametrize("version", [3, 12, BY_ID])
def test_clients_cannot_write_to_an_internal_topic(world: World, version: int) -> None:
    world.ask(FindCoordinatorRequest(key="g"), 0)
    offsets = world.image.topics["__consumer_offsets"]
    data = [PartitionProduceData(index=0, records=build_batch([Record(0, world.clock.now_ms(), b"k", b"v")]))]
    if version >= BY_ID:
        topic = TopicProduceData(topic_id=offsets.topic_id, partition_data=data)
    else:
        topic = TopicProduceData(name=offsets.name, partition_data=data)
    answer = world.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), version)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.log_of("__consumer_offsets").log_end_offset == 0
