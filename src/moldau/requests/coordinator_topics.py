"""Topics of the coordinators, made at their first use."""

from typing import Protocol

from moldau.requests.context import Services


class MakesTopic(Protocol):
    """Coordinator that has a topic."""

    @property
    def has_topic(self) -> bool: ...
    async def ensure_topic(self) -> None: ...


async def have_topic(coordinator: MakesTopic, services: Services) -> None:
    """Make the coordinator's topic where it is missing, and its logs here: what asks for a shard next finds it."""
    if not coordinator.has_topic:
        await coordinator.ensure_topic()
        await services.logs_made()
