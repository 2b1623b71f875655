"""DeleteRecords. The codes are those that Apache Kafka 4.3.1 gave to the same requests."""

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.handlers.conftest import World


def delete(world: World, topic: str, index: int, offset: int, version: int | None = None) -> tuple[int, int]:
    """Low watermark and error code."""
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    (answered,) = world.ask(request, version).topics
    (result,) = answered.partitions
    assert (answered.name, result.partition_index) == (topic, index)
    return result.low_watermark, result.error_code


@pytest.mark.parametrize("version", range(3))
def test_the_log_starts_at_the_offset_afterwards(world: World, version: int) -> None:
    world.create("t")
    world.produce("t", 10)
    assert delete(world, "t", 0, 3, version) == (3, 0)
    assert world.log_of("t").log_start_offset == 3


def test_minus_one_deletes_everything_up_to_the_high_watermark(world: World) -> None:
    world.create("t")
    world.produce("t", 10)
    assert delete(world, "t", 0, -1) == (10, 0)


def test_an_offset_below_the_start_changes_nothing(world: World) -> None:
    world.create("t")
    world.produce("t", 10)
    delete(world, "t", 0, 5)
    assert delete(world, "t", 0, 1) == (5, 0)


@pytest.mark.parametrize("offset", [11, -2, -(2**63), 2**63 - 1])
def test_an_offset_that_cannot_be_is_out_of_range(world: World, offset: int) -> None:
    world.create("t")
    world.produce("t", 10)
    assert delete(world, "t", 0, offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.log_of("t").log_start_offset == 0


@pytest.mark.parametrize(("topic", "index"), [("t", 9), ("t", -1), ("nope", 0)])
def test_an_unknown_partition_is_told(world: World, topic: str, index: int) -> None:
    world.create("t")
    assert delete(world, topic, index, 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("compact", (-1, ErrorCode.POLICY_VIOLATION)),
        ("compact,delete", (0, 0)),
        ("delete", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_records_of_a_topic_that_is_only_compacted_stay(world: World, policy: str, expected: tuple[int, int]) -> None:
    world.create("t", configs={"cleanup.policy": policy})
    assert delete(world, "t", 0, 0) == expected
