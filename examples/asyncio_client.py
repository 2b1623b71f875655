"""A broker and its clients in one event loop: a clock ticks into a topic, and somebody listens.

python -m examples.asyncio_client
"""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]

import moldau.testing

TICKS = 5


async def tick(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(TICKS):
            await producer.send_and_wait("clock", f"tick {number}".encode())


async def listen(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("clock", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        for _ in range(TICKS):
            heard = await consumer.getone()
            print(f"offset {heard.offset}: {heard.value.decode()}")


async def main() -> None:
    async with moldau.testing.async_broker() as kafka:
        await asyncio.gather(tick(kafka.bootstrap), listen(kafka.bootstrap))


if __name__ == "__main__":
    asyncio.run(main())
