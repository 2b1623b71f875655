"""Restorer of nodes that nobody understands any more, from what their neighbours and the replicas know.

Law: nobody leads who may lack acknowledged records. While a broker runs that knows a partition's state, the controller
writes that state again. Where nobody knows it, every replica says at its start where its log ends. Nothing is appended
meanwhile, as nobody leads; and when all replicas have said it, the one with the last epoch and the longest log leads:
it followed, or was, the leader of that epoch, so that it has all records that this leader had acknowledged, and all
from before. Until then the partition has no leader.

The claims of the replicas are kept in the state's own node, which stays one that nobody takes for a state.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from moldau.cluster import znodes
from moldau.cluster.image import PartitionImage, TopicImage
from moldau.cluster.store import BadVersion, Check, Create, MetadataStore, Node, NodeExists, NoNode, Put
from moldau.cluster.znodes import LogEnd

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 100
"""Attempts at a claim when another replica makes its own at the same time."""


PARTITIONS_MAX = 1_000_000
"""Partitions of a topic whose partitions are counted by their nodes."""


class Claim(NamedTuple):
    """A replica's claim about its log."""

    topic: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a claim
    replicas: tuple[int, ...]
    broker_id: int
    end: LogEnd


def agreed_state(claims: Mapping[int, LogEnd], replicas: Sequence[int]) -> PartitionImage | None:
    """The state that the claims of all replicas lead to; None while one is missing."""
    if not all(broker in claims for broker in replicas):
        return None
    leader = max(replicas, key=lambda broker: claims[broker])
    epoch = max(claims[broker].leader_epoch for broker in replicas) + 1
    return PartitionImage(leader, epoch, (leader,), tuple(replicas))


class Restorer:
    """Restores states and topics in the store."""

    def __init__(self, store: MetadataStore, reread: Callable[[str], Awaitable[None]]) -> None:
        """Make the restorer; `reread` lets the image show the node at a path."""
        self._store = store
        self._reread = reread

    async def claim(self, claim: Claim) -> None:
        """Say where a replica's log ends, unless the partition has a state by now."""
        path = znodes.state_path(claim.topic, claim.index)
        for _attempt in range(ATTEMPTS_MAX):
            node = await self._store.get(path)
            if node is not None and _state(node) is not None:
                break
            before = znodes.parse_claims(node.data if node else b"")
            if before.get(claim.broker_id) == claim.end:
                break  # the others have not said it yet
            claims = {**before, claim.broker_id: claim.end}
            state = agreed_state(claims, claim.replicas)
            data = znodes.claims_json(claims) if state is None else znodes.state_json(state, 0)
            try:
                await self._write(path, data, node)
            except (BadVersion, NodeExists, NoNode):
                continue
            if state is not None:
                log.warning("%s was not to be understood: broker %d has all records and leads", path, state.leader)
            else:
                missing = sorted(set(claim.replicas) - claims.keys())
                log.warning("%s is not to be understood: the partition waits for the logs of %s", path, missing)
            break
        await self._reread(path)

    async def _write(self, path: str, data: bytes, node: Node | None) -> None:
        if node is not None:
            await self._store.put(path, data, node.version)
            return
        above = [path.rsplit("/", 2)[0], path.rsplit("/", 1)[0]]
        found = await self._store.get_many(above)
        missing = [Create(parent) for parent, there in zip(above, found, strict=True) if there is None]
        await self._store.multi([*missing, Create(path, data)])

    async def topic(self, name: str, guard: Check) -> bool:
        """Write a topic's node again that cannot be understood, from the copy beside it, and with all replicas in sync.
        False: the copy or a state that it needs is not known."""
        path = znodes.topic_path(name)
        node, beside = await self._store.get_many([path, znodes.partitions_path(name)])
        kept = znodes.parse_kept_topic(beside.data) if beside else None
        if node is None or kept is None:
            log.error("%s cannot be restored: write it again by hand; all logs are kept", path)
            return False
        topic_id, replicas = kept
        copy = TopicImage(name, topic_id, tuple(replicas), {})
        topic = kept_replicas(copy, await states_of(self._store, name)) or copy
        try:
            await self._store.multi([guard, Put(path, znodes.topic_json(topic_id, topic.partitions), node.version)])
        except (BadVersion, NoNode):
            log.info("%s was written by another meanwhile", path)
        else:
            log.warning("%s was not to be understood: it is again as its copy says", path)
        await self._reread(path)
        return True


async def states_of(store: MetadataStore, name: str) -> list[PartitionImage | None]:
    """The state of every partition that a topic has nodes for, whatever its own node says; None where there is none, or
    none that can be understood."""
    try:
        names = await store.children(znodes.partitions_path(name))
    except NoNode:
        return []
    count = max((int(each) + 1 for each in names if each.isdecimal()), default=0)
    if count > PARTITIONS_MAX:
        return []
    nodes = await store.get_many([znodes.state_path(name, index) for index in range(count)])
    return [_state(node) if node else None for node in nodes]


def kept_replicas(topic: TopicImage, states: Sequence[PartitionImage | None]) -> TopicImage | None:
    """The topic of an older tool's node, but with all partitions that it had and with all replicas in sync; None if
    nobody knows the replicas of a partition that is missing."""
    partitions = list(topic.partitions)
    for index, state in enumerate(states):
        if index >= len(partitions):
            if state is None or not state.isr:
                return None
            partitions.append(znodes.NO_STATE._replace(replicas=_leader_first(state)))
        elif state is not None and not set(state.isr) <= set(partitions[index].replicas):
            partitions[index] = partitions[index]._replace(replicas=_leader_first(state))
    return topic._replace(partitions=tuple(partitions))


def _state(node: Node) -> PartitionImage | None:
    try:
        return znodes.parse_state(node.data, node.version)
    except znodes.MalformedNode:
        return None


def _leader_first(state: PartitionImage) -> tuple[int, ...]:
    others = [broker for broker in state.isr if broker != state.leader]
    return (state.leader, *others) if state.leader in state.isr else tuple(others)
