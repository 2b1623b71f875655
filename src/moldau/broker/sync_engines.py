"""The engines that sync logs beside the loop, by `log.flush.engine`.

The kernel's is imported and made when it is needed first: it brings ctypes, and most brokers start without many logs to
sync at once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from moldau.core.files import HasDescriptor, OnResult, SyncEngine

if TYPE_CHECKING:
    from moldau.broker.kernel_syncs import KernelSyncs

log = logging.getLogger(__name__)


class EngineAtNeed:
    """The kernel's engine from the first sync on that it is asked for, if the system allows it; it takes none
    otherwise."""

    def __init__(self, make: "Callable[[], KernelSyncs]") -> None:
        """`make` raises OSError where the system does not allow it."""
        self._make: Callable[[], KernelSyncs] | None = make
        self._engine: KernelSyncs | None = None

    def begin(self, file: HasDescriptor, then: OnResult) -> bool:
        if self._make is not None:
            make, self._make = self._make, None
            try:
                self._engine = make()
            except OSError as error:
                log.warning("the system allows no asynchronous syncs, threads make them all: %s", error)
        return self._engine is not None and self._engine.begin(file, then)

    def submit(self) -> None:
        if self._engine is not None:
            self._engine.submit()

    def close(self) -> None:
        """Close what was made; it takes no sync any more."""
        self._make, engine, self._engine = None, self._engine, None
        if engine is not None:
            engine.close()


def sync_engines(
    loop: asyncio.AbstractEventLoop, name: str, paths: Iterable[str], to_release: AsyncExitStack
) -> Mapping[str, SyncEngine]:
    """The engine of each data directory; none where threads make all syncs.

    `aio` raises OSError where the system does not allow it.
    """
    engines: dict[str, SyncEngine] = {}
    for path in paths if name != "thread" else ():
        engine = _kernel_syncs(loop) if name == "aio" else EngineAtNeed(partial(_kernel_syncs, loop))
        to_release.callback(engine.close)
        engines[path] = engine
    log.info("logs are synced by %s", WHO[name])
    return engines


WHO = {"thread": "threads", "aio": "aio", "auto": "threads, and by aio where many are synced at once"}


def _kernel_syncs(loop: asyncio.AbstractEventLoop) -> "KernelSyncs":
    from moldau.broker.kernel_syncs import KernelSyncs

    return KernelSyncs(loop)
