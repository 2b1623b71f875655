"""Elements that a request names more than once. Kafka refuses them rather than choosing between the two meanings."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from moldau.requests.turns import Turns

Item = TypeVar("Item", bound=Hashable)


def repeated(items: Iterable[Item]) -> dict[Item, None]:
    """The items that come more than once, in the order in which that shows."""
    seen: set[Item] = set()
    twice: dict[Item, None] = {}
    for item in items:
        if item in seen:
            twice[item] = None
        seen.add(item)
    return twice


async def repeated_in_turns(items: Iterable[Item], turns: Turns) -> dict[Item, None]:
    """The same of very many items."""
    seen: set[Item] = set()
    twice: dict[Item, None] = {}
    async for item in turns.each(items):
        if item in seen:
            twice[item] = None
        seen.add(item)
    return twice
