"""Records that no client of a producer's library would write."""

from moldau.cli.wire import WireCluster
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.records.batch import BATCH_HEADER_BYTES, Record, build_batch, read_header, reseal

NAMES_TOPICS = 9
"""The newest version of Produce that names topics."""
NAME, BROKEN = b"a header", b"\xff\xfe\xc3(\x00\x1b[A"


def produce_broken_header(bootstrap: str, topic: str, value: bytes) -> None:
    """Write a record with a header whose name is no UTF-8, to partition 0."""
    batch = build_batch([Record(0, 0, b"broken name", value, ((NAME.decode(), b"1"),))])
    section = bytes(batch[BATCH_HEADER_BYTES:]).replace(NAME, BROKEN)
    _, batch = reseal(read_header(batch), section)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    with WireCluster(bootstrap) as wire:
        (told,) = wire.metadata([topic])
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data)
        answer = wire.broker(told.partitions[0].leader_id).request(request, ProduceResponse, NAMES_TOPICS)
    assert answer.responses[0].partition_responses[0].error_code == 0
