"""Parts of a running broker that its metrics are read from."""

import asyncio
from typing import NamedTuple

from moldau.broker.cluster_member import ClusterMember
from moldau.broker.controller import Controller
from moldau.broker.group_coordinator import GroupCoordinator
from moldau.broker.isr_changes import IsrProposals
from moldau.broker.listeners import Listeners
from moldau.cluster.store import MetadataStore
from moldau.requests.parts import Parts


class Observed(NamedTuple):
    """Objects that count, or know, what a scrape tells."""

    loop: asyncio.AbstractEventLoop
    parts: Parts
    store: MetadataStore
    listeners: Listeners
    groups: GroupCoordinator
    controller: Controller
    isr_changes: IsrProposals

    @classmethod
    def of(
        cls,
        loop: asyncio.AbstractEventLoop,
        parts: Parts,
        store: MetadataStore,
        listeners: Listeners,
        groups: GroupCoordinator,
        member: ClusterMember,
    ) -> "Observed":
        """Observed parts of a broker that is a member of its cluster."""
        return cls(loop, parts, store, listeners, groups, member.controller, member.isr_changes)
