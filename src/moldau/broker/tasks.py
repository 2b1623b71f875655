"""Periodic work of a broker, each task at its own interval."""

import asyncio
import logging
from collections.abc import Callable

from moldau.core.invariants import InvariantError

log = logging.getLogger(__name__)


class Periodic:
    """Calls `work` every `interval_ms()` until it is stopped; the interval is asked anew each time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval_ms: Callable[[], int], work: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._interval_ms = interval_ms
        self._work = work
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._interval_ms() / 1000, self._run)

    def _run(self) -> None:
        try:
            self._work()
        except InvariantError as error:
            self._loop.call_exception_handler({"message": f"{self._work.__qualname__} failed", "exception": error})
        except Exception:
            log.exception("%s failed; it is tried again at the next interval", self._work.__qualname__)
        self._schedule()
