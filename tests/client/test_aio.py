"""The clients for asyncio: the same promises, and the loop never waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau import JSON, ClientError, Record
from moldau.aio import Admin, Consumer, Producer, SimpleConsumer


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


async def send(bootstrap: str, topic: str, *values: object) -> None:
    async with Producer(bootstrap, value=JSON) as producer:
        for value in values:
            await producer.send(topic, value)


def test_records_are_sent_and_read(bootstrap: str, moldau_topic: str) -> None:
    async def work() -> None:
        async with Producer(bootstrap, value=JSON) as producer:
            assert (await producer.send_and_wait(moldau_topic, 0)).offset == 0
            futures = [await producer.send(moldau_topic, value) for value in (1, 2)]
            assert [each.offset for each in await asyncio.gather(*futures)] == [1, 2]
        async with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=JSON) as consumer:
            assert [record.value async for record in consumer.records(limit=2)] == [0, 1]
        async with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=JSON) as again:
            assert [record.value async for record in again.records(limit=1)] == [2]
            await again.seek_to_beginning()
            assert [record.value async for record in again.records(limit=1)] == [0]

    run(work)


def test_a_simple_consumer_and_an_admin_are_awaited(bootstrap: str, moldau_topic: str) -> None:
    async def work() -> None:
        await send(bootstrap, moldau_topic, *range(4))
        async with Admin(bootstrap) as admin:
            assert moldau_topic in await admin.topics()
            assert await admin.offsets(moldau_topic) == {0: 4}
        async with SimpleConsumer(moldau_topic, 0, 2, bootstrap=bootstrap, value=JSON) as log:
            assert [record.value async for record in log.to_end()] == [2, 3]
            await log.rewind()
            assert [record.value async for record in log.records(limit=1)] == [0]

    run(work)


def test_records_are_copied_exactly_once(bootstrap: str, moldau_topic: str) -> None:
    copied = f"{moldau_topic}-copied"

    async def work() -> None:
        await send(bootstrap, moldau_topic, 1, 2)
        async with (
            Consumer(
                moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=JSON, auto_commit=False
            ) as consumer,
            Producer(bootstrap, value=JSON, transactional_id=moldau_topic) as producer,
        ):
            first = await consumer.poll(30)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012  the block's end
                async with producer.transaction(consumer):
                    await producer.send(copied, first and first.value)
                    raise ZeroDivisionError
            async for record in consumer.records(limit=2):
                async with producer.transaction(consumer):
                    await producer.send(copied, record.value)
        async with SimpleConsumer(copied, bootstrap=bootstrap, value=JSON) as log:
            assert [record.value async for record in log.to_end()] == [1, 2]
        async with Admin(bootstrap) as admin:
            assert await admin.group_offsets(moldau_topic) == {(moldau_topic, 0): 2}

    run(work)


def test_a_failure_that_nobody_awaits_is_told_at_the_end() -> None:
    async def work() -> None:
        async with Producer("127.0.0.1:1", properties={"message.timeout.ms": 200}) as producer:
            with pytest.raises(ClientError):
                await producer.send_and_wait("visits", "seen")
            await producer.send("visits", "lost")

    with pytest.raises(ClientError, match=r"'visits'.*timed out"):
        run(work)


def test_a_caller_who_is_cancelled_loses_no_record(bootstrap: str, moldau_topic: str) -> None:
    async def work() -> None:
        async with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=JSON) as consumer:
            waiting = asyncio.ensure_future(consumer.poll(30))
            await asyncio.sleep(0)  # it has begun to wait in the thread
            waiting.cancel()
            await send(bootstrap, moldau_topic, 1, 2)
            assert [record.value async for record in consumer.records(limit=2)] == [1, 2]

    run(work)


def test_a_handler_is_tried_again_then_buried_and_a_stop_ends_the_loop(bootstrap: str, moldau_topic: str) -> None:
    async def work() -> None:
        await send(bootstrap, moldau_topic, "bad", "good")

        async def handle(record: Record[bytes, Any]) -> None:
            if record.value == "bad":
                raise ValueError("it is bad")
            consumer.stop()

        async with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap, value=JSON) as consumer:
            counts = await consumer.run(handle, retries=1, backoff_s=0.001, dead_letters=f"{moldau_topic}.dead")
        assert (counts.handled, counts.retried, counts.dead) == (1, 1, 1)
        async with SimpleConsumer(f"{moldau_topic}.dead", bootstrap=bootstrap, value=JSON) as log:
            assert [record.header("moldau.dlq.reason") async for record in log.to_end()] == [b"ValueError: it is bad"]

    run(work)


def test_the_loop_runs_on_while_a_consumer_waits(bootstrap: str, moldau_topic: str) -> None:
    async def work() -> None:
        async with Consumer(moldau_topic, group_id=moldau_topic, bootstrap=bootstrap) as consumer:
            waiting = asyncio.ensure_future(consumer.poll(1.0))
            turns = 0
            while not waiting.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert await waiting is None
            assert turns > 50

    run(work)
