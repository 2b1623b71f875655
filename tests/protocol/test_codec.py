"""What is written is what is read, in every version, and records pass through untouched."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.protocol import codec
from moldau.protocol.codec import decode, encode, encode_chunks
from moldau.protocol.errors import ProtocolError
from moldau.protocol.messages.headers import RequestHeader
from moldau.protocol.messages.k00_produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.protocol.messages.k02_list_offsets import ListOffsetsPartitionResponse
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.k12_heartbeat import HeartbeatRequest
from moldau.protocol.messages.k18_api_versions import ApiVersionsResponse
from moldau.protocol.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from moldau.protocol.schema import EMPTY, Array, Field, Message, Struct
from tests.protocol.sampling import every_version, message_types, region_of, sample, versions
from tests.protocol.strategies import structs
from tests.selection import examples

EXAMPLES = 12
"""For each message; the versions are drawn too. Every single version is in the seeded test below."""


@pytest.mark.parametrize("message_type", message_types(), ids=lambda cls: cls.__name__)
def test_any_message_comes_back(message_type: type[Message]) -> None:
    @settings(max_examples=examples(EXAMPLES), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def comes_back(data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(versions(message_type)))
        message = data.draw(structs(message_type, version))
        assert decode(message_type, version, encode(message, version)) == message

    comes_back()


def test_every_version_comes_back() -> None:
    for message_type, version in every_version():
        seed = f"{message_type.__name__} {version}"
        message = sample(message_type, version, Random(seed))
        assert decode(message_type, version, encode(message, version)) == message, f"seed {seed!r}"


def test_a_message_without_values_is_its_defaults() -> None:
    for message_type, version in every_version():
        assert decode(message_type, version, encode(message_type(), version)) == message_type()


def test_every_buffer_type_reads_alike() -> None:
    message = sample(FetchResponse, 17, Random(3))
    data = encode(message, 17)
    assert all(decode(FetchResponse, 17, kind(data)) == message for kind in (bytes, bytearray, memoryview))


def test_reading_starts_at_the_position_it_is_given() -> None:
    assert decode(HeartbeatRequest, 4, b"header" + encode(HeartbeatRequest(group_id="g"), 4), 6).group_id == "g"
    read = codec.decoder(HeartbeatRequest, 4)
    message, end = read(b"header" + encode(HeartbeatRequest(group_id="g"), 4) + b"rest", 6)
    assert (message.group_id, end) == ("g", 15)


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(ProtocolError, match="2 bytes after its end"):
        decode(HeartbeatRequest, 4, encode(HeartbeatRequest(), 4) + b"\0\0")


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no version 99"):
        encode(HeartbeatRequest(), 99)
    with pytest.raises(ValueError, match="no version -1"):
        decode(HeartbeatRequest, -1, b"")


# Records.


def produce_request(records: bytes | None) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def test_records_of_a_request_are_a_view_of_its_frame() -> None:
    frame = encode(produce_request(b"batch"), 9)
    records = decode(ProduceRequest, 9, memoryview(frame)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"batch"


def test_records_may_be_null_or_empty() -> None:
    for version in versions(ProduceRequest):
        for records in (None, b""):
            request = produce_request(records) if version < 13 else ProduceRequest()
            assert decode(ProduceRequest, version, encode(request, version)) == request


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=data) for index, data in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [0, 4, 11, 12, 16])
def test_records_of_a_response_are_chunks_of_their_own(version: int) -> None:
    region = region_of(b"--batch--", 2, 5)
    view = memoryview(b"another")
    response = fetch_response(region, None, b"", view)
    chunks = encode_chunks(response, version, b"prefix")
    assert chunks[1] is region
    assert chunks[3] is view
    assert isinstance(chunks[0], bytes)
    assert chunks[0].startswith(b"prefix")
    assert len(chunks) == (4 if version < 12 else 5)  # flexible versions end in tags
    assert encode(response, version) == encode(fetch_response(b"batch", None, b"", b"another"), version)


def test_without_records_there_is_one_chunk() -> None:
    assert len(encode_chunks(fetch_response(None, b""), 17)) == 1
    assert encode_chunks(MetadataRequest(topics=None), 4, b"p") == [b"p\xff\xff\xff\xff\x01"]


# Fields that a version does not have.


def absent(row: Field, version: int) -> bool:
    return not row.is_in(version) and not isinstance(row.wire, Array) and row.default is not None


def other_value(row: Field) -> Any:
    """A value that is not the default."""
    if isinstance(row.default, bool):
        return not row.default
    if isinstance(row.default, str):
        return row.default + "x"
    if isinstance(row.default, bytes):
        return b"y" * 16
    return row.default + 1 if isinstance(row.default, int) else row.default


def test_a_value_without_room_is_dropped_if_ignorable_and_refused_otherwise() -> None:
    for message_type, version in every_version():
        for name, row in message_type.__fields__.items():
            if not absent(row, version) or isinstance(row.default, Struct):
                continue
            message = message_type(**{name: other_value(row)})
            if row.ignorable:
                assert encode(message, version) == encode(message_type(), version)
            else:
                with pytest.raises(ValueError, match=f"has no {name}"):
                    encode(message, version)


def test_a_filled_list_without_room_is_refused() -> None:
    assert ListOffsetsPartitionResponse.__fields__["old_style_offsets"].default is EMPTY
    with pytest.raises(ValueError, match="has no forgotten_topics_data"):
        encode(sample(FetchRequest, 7, Random(5)), 6)


def test_null_where_it_is_not_allowed_is_refused() -> None:
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="cannot be written as version 0"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError, match="topics is null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="name is null"):
        decode(MetadataRequest, 9, b"\x02\x00\x00\x01\x00\x00\x00")


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        encode(HeartbeatRequest(generation_id=2**31), 4)


# Tagged fields (KIP-482).


def test_a_tagged_field_is_sent_only_when_it_differs_from_its_default() -> None:
    plain = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[PartitionProduceResponse()])])
    same = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1))
    moved = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=2))
    equal = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[same])])
    other = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[moved])])
    assert encode(equal, 10) == encode(plain, 10)
    # one tag, number 0, nine bytes: leader 7, epoch 2, no tags of its own
    assert encode(other, 10).endswith(bytes.fromhex("01 00 09 00000007 00000002 00") + b"\0" + bytes(4) + b"\0")


def test_unknown_tags_are_skipped() -> None:
    known = encode(HeartbeatRequest(group_id="g"), 4)
    tags = bytes.fromhex("02 2a 03 616263 ffffffff0f 00")  # 42: "abc"; 2^32-1: nothing
    assert decode(HeartbeatRequest, 4, known[:-1] + tags).group_id == "g"


def test_unknown_tags_beside_known_ones_are_skipped() -> None:
    request = FetchRequest(cluster_id="c")
    known = encode(request, 12)
    assert known.endswith(bytes.fromhex("01 00 02 02 63"))
    assert decode(FetchRequest, 12, known[:-5] + bytes.fromhex("02 00 02 02 63 09 01 ff")) == request


def test_a_tagged_field_of_another_size_than_it_says_is_refused() -> None:
    known = encode(FetchRequest(cluster_id="c"), 12)
    with pytest.raises(ProtocolError, match="tagged field 0"):
        decode(FetchRequest, 12, known[:-5] + bytes.fromhex("01 00 03 02 63 00"))


# Layouts worth seeing in bytes.


def test_metadata_request_layouts() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="ab")])
    assert encode(request, 0) == bytes.fromhex("00000001 0002 6162")
    assert encode(request, 4) == bytes.fromhex("00000001 0002 6162 01")
    assert encode(request, 12) == bytes.fromhex("02" + "00" * 16 + "03 6162 00 01 00 00")


def test_a_nullable_struct_is_a_byte_and_itself() -> None:
    without = encode(DescribeTopicPartitionsRequest(), 0)
    cursor = Cursor(topic_name="t", partition_index=1)
    assert without == bytes.fromhex("01 000007d0 ff 00")
    assert encode(DescribeTopicPartitionsRequest(cursor=cursor), 0) == bytes.fromhex(
        "01 000007d0 01 02 74 00000001 00 00"
    )


def test_the_client_id_of_a_header_is_never_compact() -> None:
    header = RequestHeader(request_api_key=3, request_api_version=12, correlation_id=1, client_id="me")
    assert encode(header, 2) == bytes.fromhex("0003 000c 00000001 0002 6d65 00")


def test_api_versions_answer_in_version_0_has_no_throttle_time() -> None:
    assert encode(ApiVersionsResponse(error_code=35, throttle_time_ms=9), 0) == bytes.fromhex("0023 00000000")
