"""Room for records between a thread that reads and somebody who may take them slowly.

The law: records that wait have a number and a size. A value of many megabytes waits alone.
"""

import threading
from collections.abc import Callable

WAITING_MAX = 1000
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of keys and values that wait; decoded they take about three times as much."""
LOOK_S = 0.2
"""Time after which one who waits looks whether anybody still listens."""


class Room:
    """Room of one stream: the thread enters with each record, the event loop leaves with it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records = 0
        self._bytes = 0

    def enter(self, size: int, is_stopped: Callable[[], bool]) -> None:
        """Wait until there is room, or nobody listens any more."""
        with self._changed:
            while self._is_full(size) and not is_stopped():
                self._changed.wait(LOOK_S)
            self._records += 1
            self._bytes += size

    def _is_full(self, size: int) -> bool:
        is_alone = self._records == 0
        return not is_alone and (self._records >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX)

    def leave(self, size: int) -> None:
        """Make room again."""
        with self._changed:
            self._records -= 1
            self._bytes -= size
            self._changed.notify()
