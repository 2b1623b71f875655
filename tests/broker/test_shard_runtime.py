"""One shard over a log in memory, with a disk that syncs when the test says so."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from moldau.broker.shard_runtime import GATHERED_MAX, PendingWrite, ShardRuntime, State
from moldau.cluster.image import ClusterImage
from moldau.coordinators.consumer.matching_allowance import MatchingAllowance
from moldau.coordinators.groups.offsets import Committing, OffsetToCommit
from moldau.coordinators.groups.offsets_topic import offsets_topic_settings
from moldau.coordinators.groups.record_tables import OffsetCommitKey, OffsetCommitValue
from moldau.coordinators.groups.shard import GroupShard
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Decision, Outcome, answered
from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.timers import Timers
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.verification import NOT_VERIFIED
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import EndTxnMarker, Record, build_batch, build_end_txn_marker, split_batches
from moldau.replication.durability import Durability
from moldau.replication.partition import Partition
from tests.committers import ManualDisk

PRODUCER = 5

T = TypeVar("T")
Host = ShardRuntime[GroupShard]


class Bench:
    """Made inside the event loop."""

    def __init__(self, properties: dict[str, str] | None = None, *, replicas: Sequence[int] = (1,)) -> None:
        config, _ = BrokerConfig.parse(properties or {})
        self.clock = ManualClock()
        self.disk = ManualDisk()
        topic_config = TopicConfig.of(config, {"cleanup.policy": "compact"})
        opened = Log.open(MemoryFiles(), self.clock, "/o-0", TopicPartition("o", 0), topic_config)
        self.partition = Partition(b"o" * 16, opened, 0, (1,), broker_id=1, replicas=replicas, clock=self.clock)
        self.config = config
        self.durability = Durability("group", self.disk)
        self.image = ClusterImage()
        self.failures: list[bool] = []

    def host(self, *, is_cautious: bool = False) -> Host:
        """One that has to load."""
        settings = offsets_topic_settings(self.config)
        return ShardRuntime(
            asyncio.get_running_loop(),
            self.clock,
            self.durability,
            lambda: settings,
            self._shard,
            self.partition,
            lambda _, active: self.failures.append(active),
            is_cautious=is_cautious,
        )

    def _shard(self, timers: Timers) -> GroupShard:
        world = World(
            self.clock,
            timers,
            lambda: self.config,
            lambda: self.image,
            lambda: bytes(16),
            MatchingAllowance(),
        )
        return GroupShard(world)

    def batches(self) -> list[int]:
        """How many records each batch of the log has."""
        region = self.partition.read(0, 1 << 20, committed=False, min_one_batch=True)
        return [] if region is None else [header.record_count for header, _ in split_batches(region.read())]

    async def active(self) -> Host:
        host = self.host()
        await host.load()
        assert host.state is State.ACTIVE
        return host

    def append(self, batch: bytes) -> None:
        self.partition.append_own(batch, self.clock.now_ms(), NOT_VERIFIED)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def commit(offset: int) -> Callable[[GroupShard], Decision[list[int]]]:
    return lambda shard: shard.offsets.commit(Committing("g"), [OffsetToCommit("t", b"t" * 16, 0, offset)])


def fetch(shard: GroupShard) -> Decision[list[int]]:
    return answered([each.offset for each in shard.offsets.fetch("g", None)])


def committed(host: Host) -> list[int]:
    return [each.offset for each in host.shard.offsets.fetch("g", None)]


def write(host: Host, decide: Callable[[GroupShard], Decision[T]]) -> "asyncio.Future[T]":
    """As `host.answer`, told in the same turn of the loop; an error is raised by who asks for the result."""
    outcome, promise = decide(host.shard)
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    host.hold(outcome, promise, AtOnce(host, outcome, answer))
    return answer


class AtOnce(PendingWrite[Any]):
    """A write whose answer is told in the turn of the loop in which it is there."""

    def __init__(self, host: Host, outcome: Outcome, answer: "asyncio.Future[Any]") -> None:
        super().__init__(host, outcome, lambda error: error)
        self._answer = answer

    def keep(self, value: Any) -> None:
        if self.ends_waiting():
            self._answer.set_result(value)

    def refuse(self, error: ApiError) -> None:
        if self.ends_waiting():
            self._answer.set_exception(error)


async def turn() -> None:
    """Let what was decided get into the log."""
    await asyncio.sleep(0)


def code_of(error: ApiError) -> list[int]:
    return [error.code]


def refusal(answer: "asyncio.Future[Any]") -> ErrorCode:
    error = answer.exception()
    assert isinstance(error, ApiError)
    return error.code


def as_batch(*records: tuple[bytes, bytes | None], **more: Any) -> bytes:
    return build_batch([Record(index, 0, key, value) for index, (key, value) in enumerate(records)], **more)


def offset_record(offset: int) -> tuple[bytes, bytes | None]:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    return encode_record(CoordinatorRecord(key, OffsetCommitValue(offset=offset)))


def test_an_answer_waits_for_the_disk_and_so_does_who_reads_after_it() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        first, reader = write(host, commit(1)), write(host, fetch)
        await turn()
        second, late_reader = write(host, commit(2)), write(host, fetch)
        await turn()
        assert not any(each.done() for each in (first, reader, second, late_reader))
        await bench.disk.finish()
        assert (first.result(), reader.result()) == ([0], [1])
        assert not second.done()
        assert not late_reader.done()
        await bench.disk.finish()
        assert (second.result(), late_reader.result()) == ([0], [2])
        assert write(host, fetch).done()

    run(test)


def test_what_one_turn_decides_is_one_batch_and_one_sync() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        answers = [write(host, commit(offset)) for offset in (1, 2, 3)]
        assert committed(host) == [3]
        await turn()
        assert bench.batches() == [3]
        assert len(bench.disk.syncs) == 1
        await bench.disk.finish()
        assert [each.result() for each in answers] == [[0]] * 3

    run(test)


def test_a_turn_that_decides_more_than_a_batch_holds_writes_several() -> None:
    async def test() -> None:
        bench = Bench({"message.max.bytes": "400"})
        host = await bench.active()
        answers = [write(host, commit(offset)) for offset in range(7)]
        await turn()
        assert sum(bench.batches()) == 7
        assert len(bench.batches()) > 1
        while bench.disk.syncs:
            await bench.disk.finish()
        assert [each.result() for each in answers] == [[0]] * 7

    run(test)


def test_what_needs_no_record_is_answered_at_once_and_not_ahead_of_what_does() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        assert host.answer(fetch, code_of) == []
        first = host.answer(commit(1), code_of)
        reader = host.answer(fetch, code_of)
        await turn()
        assert isinstance(first, Promise)
        assert isinstance(reader, Promise)
        assert not first.done
        assert not reader.done
        await bench.disk.finish()
        await turn()
        assert (first.value, reader.value) == ([0], [1])
        assert host.answer(fetch, code_of) == [1]

    run(test)


def test_a_refusal_is_an_answer_to_who_asked_for_one() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        member = Committing("g", "member", None, 7)
        assert host.answer(lambda shard: shard.offsets.commit(member, []), code_of) == [ErrorCode.GROUP_ID_NOT_FOUND]
        waiting = host.answer(commit(1), code_of)
        assert isinstance(waiting, Promise)
        host.close()
        assert not waiting.done
        await turn()
        assert waiting.value == [ErrorCode.NOT_COORDINATOR]

    run(test)


def test_who_is_told_an_answer_may_ask_again_only_when_all_that_was_decided_before_is_settled() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        first, second = host.answer(commit(1), code_of), host.answer(commit(2), code_of)
        assert isinstance(first, Promise)
        assert isinstance(second, Promise)
        seen: list[tuple[list[int] | Promise[list[int]], bool]] = []
        first.then(lambda _: seen.append((host.answer(fetch, code_of), second.done)))
        await turn()
        await bench.disk.finish()
        await turn()
        assert seen == [([2], False)]
        assert second.value == [0]

    run(test)


def test_the_first_of_a_crowd_are_answered_before_the_last_have_asked() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        first = host.answer(commit(0), code_of)
        assert isinstance(first, Promise)
        for number in range(1, GATHERED_MAX):
            host.answer(commit(number), code_of)
        assert bench.batches() == []
        asked = [host.answer(commit(GATHERED_MAX), code_of)]
        assert bench.batches() == [GATHERED_MAX]
        first.then(lambda _: asked.append(host.answer(fetch, code_of)))
        await turn()
        await bench.disk.finish()
        await turn()
        assert bench.batches() == [GATHERED_MAX, 1]
        assert first.value == [0]
        await bench.disk.finish()
        await turn()
        assert [each.value for each in asked if isinstance(each, Promise)] == [[0], [GATHERED_MAX]]

    run(test)


def test_a_crowd_whose_first_batch_fails_is_refused_and_not_decided_on_a_shard_that_was_given_up() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        crowd = [host.answer(commit(number), code_of) for number in range(GATHERED_MAX)]
        bench.partition.is_under_min_isr = True
        assert host.answer(commit(GATHERED_MAX), code_of) == [ErrorCode.NOT_COORDINATOR]
        assert [each.value for each in crowd if isinstance(each, Promise)] == [[ErrorCode.NOT_COORDINATOR]] * len(crowd)

    run(test)


def test_an_answer_that_cannot_be_told_does_not_keep_the_others_from_theirs() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        first, second = host.answer(commit(1), code_of), host.answer(commit(2), code_of)
        assert isinstance(first, Promise)
        assert isinstance(second, Promise)
        broken = RuntimeError("the connection broke")

        def fail(_: object) -> None:
            raise broken

        first.then(fail)
        await turn()
        await bench.disk.finish()
        await turn()
        await turn()
        assert failures == [broken]
        assert second.value == [0]

    run(test)


def test_an_append_that_fails_gives_the_shard_up_and_its_successor_appends_before_it_replays() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        answer = write(host, commit(1))
        assert committed(host) == [1]
        bench.partition.is_under_min_isr = True  # a replica was lost after the decision
        await turn()
        assert refusal(answer) == ErrorCode.NOT_COORDINATOR
        assert host.state is State.FAILED
        assert bench.failures == [True]
        successor = bench.host(is_cautious=True)
        await successor.load()
        assert refusal(write(successor, commit(1))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(successor) == []
        bench.partition.is_under_min_isr = False
        taken = write(successor, commit(1))
        assert bench.batches() == [1]
        await bench.disk.finish()
        assert taken.result() == [0]
        write(successor, commit(2))
        assert bench.batches() == [1]

    run(test)


def test_a_write_that_the_log_refuses_changes_nothing() -> None:
    async def test() -> None:
        bench = Bench({"min.insync.replicas": "2"}, replicas=(1, 2))
        host = await bench.active()
        assert refusal(write(host, commit(1))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(host) == []
        assert bench.partition.log.log_end_offset == 0

    run(test)


def test_a_batch_that_is_too_large_is_an_error_of_ours_to_clients() -> None:
    async def test() -> None:
        host = await Bench({"message.max.bytes": "10"}).active()
        assert refusal(write(host, commit(1))) == ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)


def test_more_tombstones_than_a_batch_holds_are_written_in_parts() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        key = OffsetCommitKey(group="g" * 200, topic="t" * 249, partition=0)
        host.apply_in_parts(Outcome([CoordinatorRecord(key, None)] * 10_000))
        await turn()
        assert bench.partition.log.log_end_offset == 10_000
        assert host.state is State.ACTIVE

    run(test)


def test_a_failed_sync_gives_the_shard_up_and_tells_everybody() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        waiting = write(host, lambda _: (Outcome(), Promise[int]()))
        first = write(host, commit(1))
        await turn()
        second = write(host, commit(2))
        await turn()
        await bench.disk.finish(frozenset([bench.partition.log]))
        assert [refusal(each) for each in (waiting, first, second)] == [ErrorCode.NOT_COORDINATOR] * 3
        assert host.state is State.FAILED
        assert bench.failures == [True]
        await bench.disk.finish()  # a sync that was under way ends without harm

    run(test)


def test_closing_tells_who_waits_and_stops_the_timers() -> None:
    async def test() -> None:
        host = await Bench().active()
        host.shard.timers.schedule("never", 0, lambda: pytest.fail("a timer ran after the end"))
        waiting = write(host, lambda _: (Outcome(), Promise[int]()))
        host.close()
        assert refusal(waiting) == ErrorCode.NOT_COORDINATOR
        for _ in range(3):  # turns of the loop, more than a timer of 0 ms needs
            await asyncio.sleep(0)

    run(test)


def test_a_timer_writes_like_a_request() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        told = asyncio.get_running_loop().create_future()

        def expire() -> Outcome:
            return Outcome(commit(8)(host.shard)[0].records, told.set_result)

        host.shard.timers.schedule("later", 0, expire)
        while not bench.disk.syncs:
            await asyncio.sleep(0)
        await bench.disk.finish()
        assert await told == 0
        assert committed(host) == [8]

    run(test)


def test_a_shard_loads_what_another_wrote() -> None:
    async def test() -> None:
        bench = Bench()
        host = await bench.active()
        answers = []
        for offset in (3, 4):
            answers.append(write(host, commit(offset)))
            await turn()
        host.close()
        assert [refusal(each) for each in answers] == [ErrorCode.NOT_COORDINATOR] * 2
        assert committed(await bench.active()) == [4]

    run(test)


def test_loading_follows_transactions_and_skips_what_it_does_not_know() -> None:
    async def test() -> None:
        bench = Bench()
        transaction = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True}
        end = {"producer_id": PRODUCER, "producer_epoch": 0, "timestamp": 0}
        bench.append(as_batch(offset_record(1), (b"\0\x63of a type to come", b""), (b"\0\1\0", None)))
        bench.append(as_batch(offset_record(20), base_sequence=0, **transaction))
        bench.append(build_end_txn_marker(EndTxnMarker(True, 0), **end))
        bench.append(as_batch(offset_record(30), base_sequence=1, **transaction))
        bench.append(build_end_txn_marker(EndTxnMarker(False, 0), **end))
        assert committed(await bench.active()) == [20]

    run(test)


def test_a_log_that_cannot_be_read_is_a_failure_and_not_an_empty_coordinator() -> None:
    async def test() -> None:
        bench = Bench()
        bench.append(as_batch(offset_record(1)))
        bench.partition.log.fail(OSError("the disk is gone"))
        host = bench.host()
        await host.load()
        assert host.state is State.FAILED
        assert bench.failures == [False]

    run(test)
