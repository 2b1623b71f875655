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

    def is_last(self, log: Log, then: OnSynced) -> bool:
        raise NotImplementedError(f"{log}: {then}")


class ManualDisk:
    """Its syncs end by hand, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.syncs: list[OnSynced] = []
        self.has_begun = False
        """Whether all of them have: nobody shares them any more."""

    def commit(self, logs: Sequence[Log], then: OnSynced) -> None:
        assert len(logs) == 1
        self.syncs.append(then)
        self.has_begun = False

    def is_last(self, log: Log, then: OnSynced) -> bool:  # noqa: ARG002  as that of a disk with several logs
        return not self.has_begun and bool(self.syncs) and self.syncs[-1] == then

    async def finish(self, failed: frozenset[Log] = NONE_FAILED) -> None:
        """End the oldest sync and let what hangs on it run."""
        self.syncs.pop(0)(failed)
        await asyncio.sleep(0)
