"""A broken invariant stops the partition that it is about, and no other; one of the broker itself ends the broker."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.broker.broker import Broker
from moldau.broker.shard_runtime import State
from moldau.broker.tasks import Periodic
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.outcome import Decision
from moldau.core.broker_config import BrokerConfig
from moldau.core.invariants import InvariantError
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.replication.follower import FollowedPartition
from moldau.replication.lane import CHECK_BITS
from moldau.replication.partition import Partition
from tests.broker.test_lifecycle import in_loop
from tests.broker.test_shard_runtime import Bench, run
from tests.handlers.conftest import World
from tests.handlers.test_produce_repeats import Producers, _batch, _decode
from tests.log.helpers import NOW_MS, append, batch, memory_log


def _past_the_end(partition: Partition) -> None:
    partition.high_watermark = partition.log.log_end_offset + 100_000


def _start_past_all(partition: Partition) -> None:
    partition.log.log_start_offset = partition.log.log_end_offset + 100_000


@pytest.fixture
def world() -> Iterator[World]:
    made = World({})
    yield made
    made.close()


BREAKS: dict[str, Callable[[Partition], None]] = {
    "high watermark past the end": _past_the_end,
    "log start past the end": _start_past_all,
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_partition_stops_and_its_neighbour_goes_on(
    name: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("t", 2)
    broken, whole = (world.services.replicas.get("t", index) for index in (0, 1))
    told: list[str] = []
    world.services.logs._on_offline = lambda _path, logs: told.extend(str(each.topic_partition) for each in logs)
    world.produce("t", 1)
    BREAKS[name](broken)
    with caplog.at_level(logging.CRITICAL):
        for _ in range(3):
            with pytest.raises(ApiError) as error:
                world.produce("t", 1)
            assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(caplog.records) == 1
    assert told == [str(broken.topic_partition)]
    with pytest.raises(ApiError):
        broken.read(0, 1000, committed=False, min_one_batch=True)
    world.produce("t", 1, partition=1)
    assert whole.high_watermark == 1
    assert all(directory.failure is None for directory in world.services.logs.directories)
    assert not world.services.logs.close(), "the directory must be checked at the next start"


@pytest.mark.parametrize("name", BREAKS)
def test_the_short_way_finds_it_too(name: str) -> None:
    producers = Producers(is_lent=True)
    try:
        for _ in range(3):
            producers.send(producers.frame(_batch(), more=(1,)))
        world = producers.worlds[0]
        BREAKS[name](world.services.replicas.get("t", 0))
        codes: set[tuple[int, ...]] = set()
        for _ in range((1 << CHECK_BITS) + 1):
            answer = producers._remembering.dispatch(
                producers.frame(_batch(), more=(1,)), producers._peer, is_lent=True
            )
            chunks = [answer] if isinstance(answer, bytes) else answer
            assert isinstance(chunks, list)
            results = _decode(b"".join(map(bytes, chunks))).responses[0].partition_responses  # type: ignore[arg-type]
            codes.add(tuple(result.error_code for result in results))
        assert codes <= {(0, 0), (ErrorCode.KAFKA_STORAGE_ERROR, 0)}
        assert (ErrorCode.KAFKA_STORAGE_ERROR, 0) in codes
        assert world.log_of("t").failure is not None
    finally:
        producers.close()


def test_a_follower_that_is_broken_takes_nothing_more() -> None:
    leader, log = memory_log(), memory_log()
    append(leader, batch(b"a"))
    region = leader.read(0, 1000, 1)
    assert region is not None
    follower = FollowedPartition(bytes(16), log, 1, 0, 0)
    follower.high_watermark = 100
    for _ in range(2):
        with pytest.raises(ApiError) as error:
            follower.take(region.read(), 0, 0, NOW_MS)
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None


def test_a_coordinator_whose_state_contradicts_itself_is_read_again() -> None:
    async def test() -> None:
        bench = Bench()
        host = bench.host()
        await host.load()

        def decide(_: GroupShard) -> Decision[int]:
            raise InvariantError("a group cannot go from here to there")

        assert host.answer(decide, lambda error: error.code) == ErrorCode.NOT_COORDINATOR
        assert host.state is State.FAILED
        assert bench.failures == [True]

    run(test)


@in_loop
async def test_one_that_is_of_no_partition_ends_the_broker(tmp_path: Path) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    broker = Broker(BrokerConfig.parse(properties)[0])
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(broker.unhandled)
    await broker.start()

    def work() -> None:
        raise InvariantError("all is lost")

    task = Periodic(loop, lambda: 1, work)
    await asyncio.wait_for(broker.failed.wait(), 10)
    task.stop()
    await broker.stop()
