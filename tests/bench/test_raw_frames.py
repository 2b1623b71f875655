"""Frames of the driver of `bench.ab`: a number at a wrong place would make every answer look right."""

from pathlib import Path
from struct import unpack_from

import pytest

from bench import raw_frames
from moldau.protocol.codec import decode, encode
from moldau.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from moldau.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.records.compression import Codec

TOPIC_ID = bytes(range(16))
ANSWER_HEADER = b"\0\0\0\7\0"  # correlation id, no tagged fields
ERROR = 42


def test_the_number_that_rises_is_the_fetch_offset(tmp_path: Path) -> None:
    batch = raw_frames.batch_of(16, Codec.NONE)
    script = raw_frames.fetch(tmp_path / "frame", TOPIC_ID, 65_536, batch, records=16, stored=100)
    frame = bytearray(script.frame.read_bytes())
    frame[script.rises_at : script.rises_at + 8] = script.step.to_bytes(8, "big")
    size_and_header = 4 + len(raw_frames._header(1, 17, 0, 0))
    request = decode(FetchRequest, raw_frames.FETCH_VERSION, bytes(frame), size_and_header)
    assert request.topics[0].partitions[0].fetch_offset == 3 * 16  # three such batches are whole in 64 KiB
    assert request.topics[0].partitions[0].partition_max_bytes == 65_536
    assert script.times == 33


def test_the_error_code_is_found_in_an_answer_to_fetch(tmp_path: Path) -> None:
    batch = raw_frames.batch_of(16, Codec.NONE)
    script = raw_frames.fetch(tmp_path / "frame", TOPIC_ID, 65_536, batch, records=16, stored=100)
    data = PartitionData(partition_index=0, error_code=ERROR, high_watermark=0)
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
    answer = encode(FetchResponse(responses=[topic]), raw_frames.FETCH_VERSION, ANSWER_HEADER)
    assert unpack_from(">h", answer, script.error_at) == (ERROR,)


def test_the_error_code_is_found_in_an_answer_to_produce(tmp_path: Path) -> None:
    script = raw_frames.produce(tmp_path / "frame", "topic", 2, raw_frames.batch_of(1, Codec.LZ4))
    partitions = [PartitionProduceResponse(index=0, error_code=ERROR, base_offset=0)]
    answer = encode(
        ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=partitions)]),
        raw_frames.PRODUCE_VERSION,
        ANSWER_HEADER,
    )
    assert unpack_from(">h", answer, script.error_at) == (ERROR,)


@pytest.mark.parametrize(("kib", "expected_bytes"), [(1, 512), (4, 2048), (16, 8192)])
def test_compressed_batches_are_half_as_long(kib: int, expected_bytes: int) -> None:
    assert len(raw_frames.batch_of(kib, Codec.LZ4)) == pytest.approx(expected_bytes, rel=0.3)
