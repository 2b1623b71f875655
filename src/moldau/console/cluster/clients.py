"""Clients of the cluster: librdkafka's, in a few threads, each call with a time limit.

The law: the event loop never waits for a cluster. `Clients.run` is the only way from a page to a blocking call.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from moldau.cli.common import describe
from moldau.cli.failures import ToolError
from moldau.cli.wire import WireCluster
from moldau.console.failures import ConsoleError
from moldau.console.settings import Settings

T = TypeVar("T")

THREADS_MAX = 12
REQUEST_S = 10.0
CALL_S = 30.0
"""Seconds that a page waits for a call; the thread may go on for a while."""
GONE_CODES = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
CLIENT_ID = "moldau-console"
QUIET = {"enable.metrics.push": False}
"""A page makes a reader or two: as clients that push their metrics (KIP-714) they would soon crowd out all others."""
READER_GROUP = "moldau-console"
"""Group id of readers, which librdkafka insists on. They are assigned and never commit: no such group is ever made."""
READER = {
    "group.id": READER_GROUP,
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "allow.auto.create.topics": False,
}


class Clients:
    """Clients of one cluster."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._threads = ThreadPoolExecutor(THREADS_MAX, "console")
        self.known_brokers: tuple[str, ...] = ()
        """Addresses that the cluster has named: raw requests find it there, when the brokers of `bootstrap` hang."""

    @cached_property
    def admin(self) -> AdminClient:
        """The client for questions and changes."""
        return AdminClient(self._config({}))

    @cached_property
    def producer(self) -> Producer:
        """The producer of all records that are written without a transaction."""
        return Producer(self._config({"acks": "all", "delivery.timeout.ms": int(REQUEST_S * 1000), "linger.ms": 0}))

    def transactional_producer(self, transactional_id: str) -> Producer:
        """A producer of its own for an id; who makes it fences the one before."""
        return Producer(self._config({"transactional.id": transactional_id}))

    def reader(self, **more: Any) -> Consumer:
        """A consumer that reads what it is assigned; close it."""
        return Consumer(self._config({**READER, **more}))

    def wire(self, timeout_s: float = REQUEST_S) -> WireCluster:
        """Raw requests, for what librdkafka does not know. Raises ToolError for SASL mechanisms that these do not."""
        places = dict.fromkeys((*self.settings.bootstrap.split(","), *self.known_brokers))
        return WireCluster(",".join(places), timeout_s, self.settings.security)

    def _config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {**QUIET, **self.settings.properties, "client.id": CLIENT_ID, **more}

    async def run(self, work: Callable[[], T], timeout_s: float = CALL_S) -> T:
        """The outcome of a blocking call. Raises ConsoleError with the words of whatever refused."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError as error:
            raise ConsoleError(f"the cluster has not answered within {timeout_s:g} s", 504) from error
        except KafkaException as error:
            is_unknown = error.args[0].code() in GONE_CODES  # it may go while its page is made
            raise ConsoleError(describe(error.args[0]), 404 if is_unknown else 409) from error
        except ToolError as error:
            raise ConsoleError(str(error), 409) from error

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
