"""The clients for asyncio, under the same names: `from moldau.aio import Producer, Consumer`.

They are the clients of `moldau` behind a thread of their own, so that the loop never waits for librdkafka. A program
goes from one to the other by its import line, `async` and `await`.
"""

from moldau.client.async_admin import Admin
from moldau.client.async_consumer import Consumer
from moldau.client.async_producer import Producer
from moldau.client.async_simple_consumer import SimpleConsumer

__all__ = ["Admin", "Consumer", "Producer", "SimpleConsumer"]
