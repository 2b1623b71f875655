"""The patterns of one consumer group on their way through the names of all topics.

The law: all groups of a broker together match no longer than a `MatchingAllowance` lets them. What fits is done at
once; the rest is done in later turns, by a timer, and the group hears of it as of any timer. So a member whose pattern
takes longer gets its topics with a later heartbeat, as it does from Kafka, which always matches in the background.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from moldau.coordinators.consumer.subscriptions import compiled
from moldau.coordinators.groups.world import World
from moldau.coordinators.outcome import Outcome

MATCHING = "consumer-matching"


class _Matching:
    """One pattern. What is compiled is not kept here: there may be many patterns, and few are kept compiled."""

    __slots__ = ("_found", "_left", "_pattern", "topics")

    def __init__(self, pattern: str, topics: Mapping[str, Any]) -> None:
        self._pattern = pattern
        self.topics = topics
        self._left: Iterator[str] = iter(topics)
        self._found: set[str] = set()

    def go_on(self, world: World) -> frozenset[str] | None:
        """All names that match; None: the allowance is used up."""
        allowance, now_ms = world.matching, world.clock.monotonic_ms()
        regex = compiled(self._pattern)
        while allowance.is_left(now_ms):
            name = next(self._left, None)
            if name is None:
                return frozenset(self._found)
            before = regex.work
            if regex.matches(name):
                self._found.add(name)
            allowance.spend(regex.work - before)
        return None


class PatternMatching:
    """Matching that a group has under way. `go_on` is called, as a timer, when there may be a result."""

    def __init__(self, group_id: str, world: World, go_on: Callable[[], Outcome]) -> None:
        self._timer = f"{MATCHING}/{group_id}"
        self._world = world
        self._go_on = go_on
        self._under_way: dict[str, _Matching] = {}

    def match(self, pattern: str, topics: Mapping[str, Any]) -> frozenset[str] | None:
        """The topics whose whole name matches; None: that takes a while, and may be under way already."""
        if pattern in self._under_way:
            return None
        matching = _Matching(pattern, topics)
        found = matching.go_on(self._world)
        if found is None:
            self._under_way[pattern] = matching
            self._schedule()
        return found

    def is_behind(self, topics: Mapping[str, Any]) -> bool:
        """Whether a pattern is still on its way through other topics than these."""
        return any(matching.topics is not topics for matching in self._under_way.values())

    def matched(self, in_use: Iterable[str]) -> dict[str, frozenset[str]]:
        """Results of the patterns that were under way, as far as they are known; forgets patterns that nobody uses any
        more."""
        for pattern in self._under_way.keys() - set(in_use):
            del self._under_way[pattern]
        known: dict[str, frozenset[str]] = {}
        for pattern, matching in tuple(self._under_way.items()):
            found = matching.go_on(self._world)
            if found is None:
                self._schedule()
                break
            del self._under_way[pattern]
            known[pattern] = found
        return known

    def cancel(self) -> None:
        self._under_way.clear()
        self._world.timers.cancel(self._timer)

    def _schedule(self) -> None:
        delay_ms = self._world.matching.next_in_ms(self._world.clock.monotonic_ms())
        self._world.timers.schedule(self._timer, delay_ms, self._go_on)
