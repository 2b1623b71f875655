"""Logs that are still to be made or deleted, some in each round of the event loop.

A directory, a segment and their files take a quarter of a millisecond: the first few of an image are made at once, so
that a small topic is ready when its image is, and the others in turns with the clients' requests. Until its turn comes
a partition is not there: whoever asks for it is told that it is led elsewhere, and asks again.
"""

import asyncio
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from moldau.core.ids import TopicPartition

AT_ONCE_MAX: Final = 8
"""Two to five milliseconds, half of them in system calls."""
ROUND_S_MAX: Final = 0.005
"""Longest time of a round: on a slow disk it ends before `AT_ONCE_MAX`."""


class LogMaker:
    """Calls `settle` for each partition that had to wait, with what the image says by then."""

    def __init__(self, settle: Callable[[TopicPartition], None]) -> None:
        self._settle = settle
        self._left = AT_ONCE_MAX
        self._waiting: dict[TopicPartition, None] = {}
        self._made: list[asyncio.Future[None]] = []

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._waiting

    def begin(self) -> None:
        """A new image, or a new round."""
        self._left = AT_ONCE_MAX

    def is_now(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition's turn is now; if not, it will come. Without an event loop nobody has to wait."""
        if self._left > 0:
            self._left -= 1
            self._waiting.pop(topic_partition, None)
            return True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return True
        if not self._waiting:
            loop.call_soon(self._go_on)
        self._waiting[topic_partition] = None
        return False

    def _go_on(self) -> None:
        self.begin()
        loop = asyncio.get_running_loop()
        end = time.monotonic() + ROUND_S_MAX  # the time of the loop stands still within a round
        for topic_partition in list(islice(self._waiting, AT_ONCE_MAX)):
            del self._waiting[topic_partition]
            self._settle(topic_partition)
            if time.monotonic() > end:
                break
        if self._waiting:
            loop.call_soon(self._go_on)
            return
        made, self._made = self._made, []
        for each in made:
            if not each.done():
                each.set_result(None)

    async def made(self) -> None:
        """Returns when nothing waits any more."""
        if self._waiting:
            done = asyncio.get_running_loop().create_future()
            self._made.append(done)
            await done
