"""Reads again what others have changed in the metadata store: one reading at a time, as soon as somebody says so."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moldau.cluster.metadata import ListenerBehind
from moldau.cluster.store import SessionLost, StoreError

log = logging.getLogger(__name__)

RETRY_S = 0.5
RETRY_S_MAX = 30.0
"""Longest pause: what is wrong with a part of the broker may stay wrong, and is tried ever less often."""


class MetadataRefresh:
    """Runs `refresh` after each call of `stale`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, refresh: Callable[[], Awaitable[None]]) -> None:
        self._loop = loop
        self._refresh = refresh
        self._is_stale = False
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._pause_s = RETRY_S
        self._again: asyncio.TimerHandle | None = None

    def stale(self) -> None:
        """Something has changed."""
        self._stop_pause()
        self._is_stale = True
        if self._task is None and not self._is_closed:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self._once()
        finally:
            self._task = None

    async def _once(self) -> None:
        try:
            await self._refresh()
            self._pause_s = RETRY_S
        except SessionLost:
            return  # after it everything is read anew
        except StoreError as error:
            log.warning("changes in the metadata store cannot be read yet: %s", error)
            await asyncio.sleep(RETRY_S)
            self._is_stale = True
        except ListenerBehind:
            self._again = self._loop.call_later(self._pause_s, self.stale)
            self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)
        except Exception:
            log.exception("the cluster has changed and this broker could not apply the change")

    def _stop_pause(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def close(self) -> None:
        self._is_closed = True
        self._stop_pause()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
