"""Orders become invoices, each exactly once: what is read and what is written is committed together (aiokafka).

A transaction that fails leaves nothing: its invoices are never seen by those who read committed records, and its orders
are read again.

python -m examples.exactly_once_asyncio            a broker of its own
python -m examples.exactly_once_asyncio HOST:PORT  any Kafka cluster
"""

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]

import moldau.testing

ORDERS = 10
PLACE = TopicPartition("orders", 0)


class OutOfPaperError(Exception):
    """What happens to clerks."""


async def bill(producer: Any, consumer: Any, *, paper: int) -> int:
    """Write invoices for the next orders, at most four at a time; their number."""
    records = (await consumer.getmany(timeout_ms=1000, max_records=4)).get(PLACE, [])
    if not records:
        return 0
    async with producer.transaction():
        for record in records:
            await producer.send_and_wait("invoices", b"invoice for " + record.value)
        if len(records) > paper:
            raise OutOfPaperError
        await producer.send_offsets_to_transaction({PLACE: records[-1].offset + 1}, "clerks")
    return len(records)


async def bill_everything(bootstrap: str) -> None:
    settings = {"group_id": "clerks", "isolation_level": "read_committed", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="clerk")
    async with consumer, producer:
        billed, paper = 0, 3
        while billed < ORDERS:
            try:
                billed += await bill(producer, consumer, paper=paper)
            except OutOfPaperError:
                paper = 100
                await consumer.seek_to_committed()  # and to the beginning where nothing is committed
                if await consumer.committed(PLACE) is None:
                    await consumer.seek_to_beginning()


async def main(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as with_orders:
        for number in range(ORDERS):
            await with_orders.send_and_wait("orders", f"order {number}".encode(), partition=0)
    await bill_everything(bootstrap)
    readers = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with AIOKafkaConsumer("invoices", bootstrap_servers=bootstrap, **readers) as consumer:
        for _ in range(ORDERS):
            print((await consumer.getone()).value.decode())


async def main_with_a_broker() -> None:
    async with moldau.testing.async_broker() as kafka:
        await main(kafka.bootstrap)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]) if sys.argv[1:] else main_with_a_broker())
