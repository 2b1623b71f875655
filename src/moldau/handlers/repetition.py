"""What a request names more than once. Kafka refuses it rather than choosing between the two meanings."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

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
