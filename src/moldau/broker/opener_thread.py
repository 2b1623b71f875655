"""The thread that opens records: look-ups by time, old formats, batches of compacted topics, regular expressions.

One thread, so that what is decompressed is in memory once, however many connections want something opened: at most
`opened_bytes_max`, twice while it is put together, and what is made of it. Jobs are run in the order in which they
come, and each is bounded by its own budget. How many may wait is bounded by the connections: each has one that holds
its order, or as many as it may have requests in flight.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from moldau.broker.heap import Heap

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""Time that the loop waits for its turn at the interpreter while the thread works: the slowest of 100 round trips
beside it took 1.5 ms. With Python's own 5 ms it took 6.6."""


class OpenerThread:
    """Implements `requests.opener.Opener`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, heap: Heap) -> None:
        self._loop = loop
        self._heap = heap
        self._thread = ThreadPoolExecutor(1, "moldau-open")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        self._heap.much_was_freed()
        return self._loop.run_in_executor(self._thread, _give_way, work)

    def close(self) -> None:
        """Returns when the job that runs is done; those behind it are cancelled."""
        self._thread.shutdown(cancel_futures=True)


def _give_way(work: Callable[[], T]) -> T:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return work()
    finally:
        sys.setswitchinterval(before)
