"""A Kafka broker for tests: in this process, on a free port, in a temporary directory, ready in milliseconds.

    with moldau.testing.broker() as kafka:            # plain code: runs in a thread
        producer = Producer({"bootstrap.servers": kafka.bootstrap})

    async with moldau.testing.async_broker() as kafka:  # asyncio code: runs in your loop
        ...

With pytest, ask for the fixture `moldau_broker`.
"""

from moldau.testing.brokers import BrokerInLoop, BrokerInThread, async_broker, broker

__all__ = ["BrokerInLoop", "BrokerInThread", "async_broker", "broker"]
