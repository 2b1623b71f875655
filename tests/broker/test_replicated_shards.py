"""One shard over a log that another broker has a copy of: what is answered waits for that copy."""

import asyncio

from moldau.broker.shard_runtime import State
from moldau.protocol.errors import ErrorCode
from tests.broker.test_shard_runtime import (
    Bench,
    as_batch,
    commit,
    committed,
    fetch,
    offset_record,
    refusal,
    run,
    turn,
    write,
)

ME, OTHER = 1, 2
OTHER_EPOCH = 7


class Pair(Bench):
    """A leader and a follower in sync, which fetches when the test says so."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        super().__init__(properties, replicas=(ME, OTHER))
        self.partition.update((ME, OTHER), (ME, OTHER), 1)

    async def replicate(self, offset: int | None = None) -> None:
        """The follower asks for what comes after `offset`, so it has what is before."""
        end = self.partition.log.log_end_offset if offset is None else offset
        self.partition.replica_fetched(OTHER, OTHER_EPOCH, end, 0, self.clock.monotonic_ms())
        await asyncio.sleep(0)


def test_an_answer_waits_for_the_disk_and_for_the_other_replica() -> None:
    async def test() -> None:
        bench = Pair()
        host = await bench.active()
        first, reader = write(host, commit(1)), write(host, fetch)
        await turn()
        await bench.disk.finish()
        assert not first.done()
        assert not reader.done()
        await bench.replicate()
        assert (first.result(), reader.result()) == ([0], [1])
        second = write(host, commit(2))
        await turn()
        await bench.replicate()
        assert not second.done()
        await bench.disk.finish()
        assert second.result() == [0]

    run(test)


def test_what_was_written_first_is_answered_first() -> None:
    async def test() -> None:
        bench = Pair()
        host = await bench.active()
        answers = []
        for number in (1, 2, 3):
            answers.append(write(host, commit(number)))
            await turn()
        await bench.disk.finish()
        await bench.replicate(2)
        assert [answer.done() for answer in answers] == [True, False, False]
        await bench.disk.finish()
        assert [answer.done() for answer in answers] == [True, True, False]
        await bench.disk.finish()
        await bench.replicate()
        assert all(answer.done() for answer in answers)

    run(test)


def test_a_record_that_nobody_takes_in_time_stays_and_only_the_answer_says_so() -> None:
    async def test() -> None:
        bench = Pair({"offsets.commit.timeout.ms": "1"})
        host = await bench.active()
        answer = write(host, commit(1))
        await turn()
        await bench.disk.finish()
        await asyncio.wait([answer], timeout=10)
        assert refusal(answer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert host.state is State.ACTIVE
        assert committed(host) == [1]
        await bench.replicate()
        assert write(host, fetch).result() == [1]

    run(test)


def test_a_leader_that_resigns_sends_whoever_waits_to_the_next_one() -> None:
    async def test() -> None:
        bench = Pair()
        host = await bench.active()
        answer = write(host, commit(1))
        await turn()
        bench.partition.resign()
        host.close()
        assert refusal(answer) == ErrorCode.NOT_COORDINATOR
        await bench.disk.finish()
        await asyncio.sleep(0)

    run(test)


def test_a_new_leader_reads_what_is_past_its_high_watermark() -> None:
    async def test() -> None:
        bench = Pair()
        bench.append(as_batch(offset_record(42)))
        assert bench.partition.high_watermark == 0
        assert committed(await bench.active()) == [42]

    run(test)
