"""DescribeLogDirs."""

import errno
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.k35_describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.handlers.conftest import World


def describe(world: World, *topics: tuple[str, list[int]]) -> list[Any]:
    asked = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
    answer = world.ask(DescribeLogDirsRequest(topics=asked))
    assert answer.error_code == 0
    results: list[Any] = answer.results
    return results


def found(result: Any) -> set[tuple[str, int]]:
    return {(topic.name, each.partition_index) for topic in result.topics for each in topic.partitions}


@pytest.mark.parametrize("version", range(6))
def test_null_asks_for_all_partitions_with_their_sizes(world: World, version: int) -> None:
    world.create("t", 2)
    world.produce("t", 10, partition=1)
    (result,) = world.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (result.error_code, result.log_dir) == (0, "/data")
    (topic,) = result.topics
    sizes = {each.partition_index: each.partition_size for each in topic.partitions}
    assert sizes == {0: 0, 1: world.log_of("t", 1).size_bytes}
    assert sizes[1] > 0
    assert not any(each.is_future_key or each.offset_lag for each in topic.partitions)


def test_a_list_asks_for_those_of_them_that_are_here(world: World) -> None:
    world.create("t", 3)
    world.create("u", 1)
    (result,) = describe(world, ("t", [0, 2, 9]), ("nope", [0]), ("u", []))
    assert found(result) == {("t", 0), ("t", 2)}
    (empty,) = describe(world)
    assert found(empty) == set()


def test_room_that_cannot_be_asked_for_is_minus_one(world: World) -> None:
    (result,) = describe(world)
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)


def test_a_directory_that_failed_says_so_and_the_other_goes_on() -> None:
    world = World({}, ["/a", "/b"])
    world.create("t", 2)
    world.services.logs.directories[0].failure = OSError(errno.EIO, "broken")
    broken, fine = describe(world, ("t", [0, 1]))
    assert (broken.error_code, broken.log_dir, broken.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/a", [])
    assert (fine.error_code, fine.log_dir, len(found(fine))) == (0, "/b", 1)
    world.close()
