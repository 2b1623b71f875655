"""Committers for tests: one that is never asked, one whose syncs end by hand."""

import asyncio
from collections.abc import Sequence

from moldau.log.log import Log
from moldau.replication.durability import OnSynced

NONE_FAILED = frozenset[Log]()


class NothingToCommit:
    """For durability `os`, which never asks."""

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        raise NotImplementedError(f"{len(logs)} logs")


class ManualDisk:
    """Its syncs end by hand, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.syncs: list[OnSynced] = []

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        assert len(logs) == 1
        self.syncs.append(then)

    async def finish(self, failed: frozenset[Log] = NONE_FAILED) -> None:
        """End the oldest sync and let what hangs on it run."""
        self.syncs.pop(0)(failed)
        await asyncio.sleep(0)
