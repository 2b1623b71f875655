"""Throttle of replication (KIP-73): a rate over the last seconds, and the replicas it holds for.

Nothing is delayed by it. Who is over the rate leaves throttled partitions out until the windows have moved on, so the
bytes of one answer may pass the limit and the next ones make up for it.
"""

from collections import deque
from collections.abc import Sequence

from moldau.core.clock import Clock

WINDOWS = 11
WINDOW_MS = 1000
ALL_REPLICAS = "*"


class Throttle:
    """Counts bytes in windows of a second; `None` as rate is no limit."""

    __slots__ = ("_clock", "_rate_bytes", "_windows")

    def __init__(self, clock: Clock, rate_bytes: int | None = None) -> None:
        self._clock = clock
        self._rate_bytes = rate_bytes
        self._windows: deque[list[int]] = deque(maxlen=WINDOWS)  # [start, bytes], the oldest first

    def configure(self, rate_bytes: int | None) -> None:
        """Another rate holds from now on; what was counted before still counts."""
        self._rate_bytes = rate_bytes

    @property
    def is_limited(self) -> bool:
        return self._rate_bytes is not None

    def record(self, size: int) -> None:
        """Count bytes of throttled replicas that were sent or received."""
        now_ms = self._clock.monotonic_ms()
        windows = self._windows
        if windows and now_ms - windows[-1][0] < WINDOW_MS:
            windows[-1][1] += size
        else:
            windows.append([now_ms, size])

    def is_exceeded(self) -> bool:
        """Whether more was counted per second than the rate allows."""
        if self._rate_bytes is None:
            return False
        now_ms = self._clock.monotonic_ms()
        windows = self._windows
        while windows and now_ms - windows[0][0] >= WINDOWS * WINDOW_MS:
            windows.popleft()
        if not windows:
            return False
        elapsed_ms = max(now_ms - windows[0][0], WINDOW_MS)
        return sum(size for _, size in windows) * 1000 > self._rate_bytes * elapsed_ms


def is_throttled(replicas: Sequence[str], index: int, broker_id: int) -> bool:
    """Whether a topic's `...replication.throttled.replicas` names this replica: `*`, or `partition:broker`."""
    return bool(replicas) and (ALL_REPLICAS in replicas or f"{index}:{broker_id}" in replicas)
