"""Requests that tools of the ZooKeeper era leave below /admin, and how they are removed when they are done.

`/admin/delete_topics/NAME`: delete the topic. `/admin/preferred_replica_election`: let the preferred replicas of these
partitions lead. `/admin/reassign_partitions`: move these partitions; the tool's `--verify` looks at the partitions left
in the node, so each stays there until it has arrived.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.cluster.store import BadVersion, Delete, Listener, MetadataStore, NoNode, Operation, Put

log = logging.getLogger(__name__)

ADMIN = "/admin"
DELETE_TOPICS = f"{ADMIN}/delete_topics"
ELECTION = f"{ADMIN}/preferred_replica_election"
REASSIGNMENT = f"{ADMIN}/reassign_partitions"

Partition = tuple[str, int]


class AdminRequests(NamedTuple):
    """The requests. A version is that of the node: -1 where there is none."""

    deletions: Sequence[str]
    elections: Sequence[Partition]
    election_version: int
    moves: Mapping[Partition, tuple[int, ...]]
    moves_version: int


class AdminTree:
    """Reader of the requests, which also removes those that are done."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` when there may be something to do. Returns a function that ends this."""
        return self._store.watch(ADMIN, listener)

    async def read(self) -> AdminRequests:
        """All requests; a node that cannot be understood asks for nothing."""
        election, moves = await self._store.get_many([ELECTION, REASSIGNMENT])
        return AdminRequests(
            deletions=await self._store.children(DELETE_TOPICS),
            elections=[partition for partition, _ in _entries(ELECTION, election.data)] if election else [],
            election_version=election.version if election else -1,
            moves=_moves(moves.data) if moves else {},
            moves_version=moves.version if moves else -1,
        )

    async def deleted(self, topic: str, guard: Operation) -> None:
        await self._take_away(guard, Delete(f"{DELETE_TOPICS}/{topic}"))

    async def elected(self, version: int, guard: Operation) -> None:
        await self._take_away(guard, Delete(ELECTION, version))

    async def moved(self, left: Mapping[Partition, tuple[int, ...]], version: int, guard: Operation) -> None:
        """Leave only the moves that are not done yet."""
        if left:
            await self._take_away(guard, Put(REASSIGNMENT, _moves_json(left), version))
        else:
            await self._take_away(guard, Delete(REASSIGNMENT, version))

    async def _take_away(self, guard: Operation, operation: Operation) -> None:
        """Remove a request, unless a tool has written anew since: then it is looked at again."""
        try:
            await self._store.multi([guard, operation])
        except (BadVersion, NoNode) as error:
            log.info("%s has changed meanwhile: %s", operation.path, error)


def _entries(path: str, data: bytes) -> list[tuple[Partition, Mapping[str, Any]]]:
    try:
        entries = json.loads(data)["partitions"]
        return [((str(entry["topic"]), int(entry["partition"])), entry) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        log.error("%s is removed, as it cannot be understood: %r", path, error)
        return []


def _moves(data: bytes) -> dict[Partition, tuple[int, ...]]:
    found: dict[Partition, tuple[int, ...]] = {}
    for partition, entry in _entries(REASSIGNMENT, data):
        try:
            found[partition] = tuple(int(broker) for broker in entry["replicas"])
        except (ValueError, KeyError, TypeError) as error:
            log.error("%s: the move of %s-%d cannot be understood: %r", REASSIGNMENT, *partition, error)
    return found


def _moves_json(moves: Mapping[Partition, tuple[int, ...]]) -> bytes:
    entries = [{"topic": topic, "partition": index, "replicas": ids} for (topic, index), ids in moves.items()]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":")).encode()
