"""Clocks: time is a parameter. The broker passes a `SystemClock`, tests pass a `ManualClock` and move it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock, which record timestamps are compared with."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, for timeouts."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """Clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        self._now_ms += ms
