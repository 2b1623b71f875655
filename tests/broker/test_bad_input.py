"""Whatever arrives, the broker answers with Kafka's error or closes that connection, and serves everybody else."""

import logging
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.records.batch import Record, build_batch
from moldau.testing import BrokerInThread, broker
from tests.broker.raw import RawClient, request_frame
from tests.serving import serving

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
TOPIC = "victim"


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerInThread]:
    with broker({"message.max.bytes": "100000"}) as kafka:
        with RawClient(kafka.bootstrap) as client:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            client.ask(METADATA, 4, asked, MetadataResponse)
        yield kafka


@pytest.fixture
def client(running: BrokerInThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _others_are_unaffected(running: BrokerInThread) -> Iterator[None]:
    """A well-behaved client that was connected before goes on."""
    with RawClient(running.bootstrap) as bystander:
        bystander.ask(API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        yield
        assert produce(bystander, good_batch()) == ErrorCode.NONE


def good_batch(value: bytes = b"value") -> bytes:
    return build_batch([Record(offset=0, timestamp=1_700_000_000_000, key=b"key", value=value, headers=())])


def produce(client: RawClient, records: bytes | None, version: int = 9, acks: int = 1) -> int:
    """The error code of one produced batch."""
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])]
    )
    response = client.ask(PRODUCE, version, request, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_frame_size_that_is_negative_or_over_the_limit_closes_the_connection(client: RawClient, size: int) -> None:
    client.send(struct.pack(">i", size))
    assert client.is_closed_by_the_broker()


def test_the_reason_for_closing_is_logged(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="moldau"):
        client.send(struct.pack(">i", 2**31 - 1))
        assert client.is_closed_by_the_broker()
    assert "2147483647" in caplog.text


@pytest.mark.parametrize("key", [-1, 4, 999])
def test_an_unknown_api_key_closes_the_connection(client: RawClient, key: int) -> None:
    client.send(request_frame(key, 0, b""))
    assert client.is_closed_by_the_broker()


def test_an_unknown_version_closes_the_connection(client: RawClient) -> None:
    client.send(request_frame(PRODUCE, 99, b""))
    assert client.is_closed_by_the_broker()


def test_an_unknown_version_of_api_versions_is_answered_with_version_0_and_error_35(client: RawClient) -> None:
    client.send(request_frame(API_VERSIONS, 99, b"whatever is in there"))
    answer = client.answer(API_VERSIONS, 0, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {each.api_key for each in answer.api_keys} >= {0, 1, 2, 3, 18}


@pytest.mark.parametrize("count", [-2, 2**31 - 1, 1_000_000])
def test_a_count_that_the_frame_cannot_hold_closes_the_connection(client: RawClient, count: int) -> None:
    body = struct.pack(">hhii", -1, 1, 1000, count)  # Produce v3: no transactional id, acks, timeout, topics
    client.send(request_frame(PRODUCE, 3, body))
    assert client.is_closed_by_the_broker()


def test_bytes_behind_a_request_are_ignored(client: RawClient) -> None:
    client.send(request_frame(API_VERSIONS, 0, b"surplus"))
    assert client.answer(API_VERSIONS, 0, ApiVersionsResponse).error_code == ErrorCode.NONE


def test_a_frame_that_ends_early_is_forgotten_with_its_connection(running: BrokerInThread) -> None:
    whole = request_frame(API_VERSIONS, 0, b"")
    for length in range(1, len(whole)):
        with RawClient(running.bootstrap) as client:
            client.send(whole[:length])


def test_random_frames_are_answered_or_refused(running: BrokerInThread) -> None:
    dice = seeded_dice()
    for _ in range(300):
        with RawClient(running.bootstrap) as client:
            body = dice.randbytes(dice.randrange(200))
            client.send(request_frame(dice.randrange(0, 90), dice.randrange(0, 14), body))
            client.socket.shutdown(1)
            client.receive()


def test_random_bytes_are_refused(running: BrokerInThread) -> None:
    dice = seeded_dice()
    for _ in range(100):
        with RawClient(running.bootstrap) as client:
            client.send(b"\x7f" + dice.randbytes(dice.randrange(4, 500)))
            assert client.is_closed_by_the_broker()


def test_a_wrong_crc_is_refused(client: RawClient) -> None:
    batch = bytearray(good_batch())
    batch[-1] ^= 1
    assert produce(client, bytes(batch)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [3, 127])
def test_a_wrong_magic_is_refused(client: RawClient, magic: int) -> None:
    batch = bytearray(good_batch())
    batch[16] = magic
    assert produce(client, bytes(batch)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_a_batch_over_the_limit_is_refused(client: RawClient) -> None:
    assert produce(client, good_batch(bytes(100_001))) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_length_that_lies_is_refused(client: RawClient) -> None:
    for length in (-1, 0, 10, 2**31 - 1):
        batch = bytearray(good_batch())
        struct.pack_into(">i", batch, 8, length)
        assert produce(client, bytes(batch)) != ErrorCode.NONE


def test_a_record_count_that_lies_is_refused(client: RawClient) -> None:
    for count in (-1, 0, 2, 2**31 - 1):
        batch = bytearray(good_batch())
        struct.pack_into(">i", batch, 57, count)
        assert produce(client, bytes(batch)) != ErrorCode.NONE


@pytest.mark.parametrize("records", [None, b"", b"short"])
def test_records_that_are_no_batch_are_refused(client: RawClient, records: bytes | None) -> None:
    assert produce(client, records) != ErrorCode.NONE


def test_acks_that_do_not_exist_are_refused(client: RawClient) -> None:
    assert produce(client, good_batch(), acks=2) == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_failed_write_without_acks_closes_the_connection(client: RawClient) -> None:
    partition = PartitionProduceData(index=77, records=good_batch())
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])])
    with pytest.raises(ConnectionError):
        client.ask(PRODUCE, 9, request, ProduceResponse)


def test_memory_stays_flat_under_attack(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        attack(server.bootstrap, rounds=50)
        before_mb = server.resident_mb()
        attack(server.bootstrap, rounds=500)
        grown_mb = server.resident_mb() - before_mb
    assert grown_mb < 20


def seeded_dice() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  pytest shows it when the test fails
    return random.Random(seed)


def attack(bootstrap: str, rounds: int) -> None:
    """Announce much, send little; claim millions of elements; hold half-sent frames open meanwhile."""
    half_sent = []
    for _ in range(rounds):
        holder = RawClient(bootstrap)
        holder.send(struct.pack(">i", 100_000_000) + bytes(1000))
        half_sent.append(holder)
        with RawClient(bootstrap) as client:
            client.send(struct.pack(">i", 2**31 - 1))
        with RawClient(bootstrap) as client:
            client.send(request_frame(PRODUCE, 3, struct.pack(">hhii", -1, 1, 1000, 2**31 - 1)))
    for holder in half_sent:
        holder.socket.close()
