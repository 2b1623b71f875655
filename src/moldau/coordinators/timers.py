"""Timers of a shard: what they come to is written and replayed like any other decision."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.coordinators.outcome import Outcome

Expire = Callable[[], Outcome]


class Timers(Protocol):
    """Keys are unique within one shard; put the group's id in front, e.g. `session/<group>/<member>`."""

    def schedule(self, key: str, delay_ms: int, expire: Expire) -> None:
        """Call `expire` later as a write of this shard. Replaces a timer of the same key."""
        ...

    def cancel(self, key: str) -> None:
        """Forget a timer; one that is not there is no error."""
        ...


class _Timer(NamedTuple):
    due_ms: int
    order: int
    expire: Expire


class ManualTimers:
    """The twin for tests: time stands still until `advance`, which returns what came of the timers that were due.

    `apply` stands for the runtime: it is called with each outcome before the next timer runs. Without it outcomes
    are only collected.
    """

    def __init__(self, apply: Callable[[Outcome], None] | None = None, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.apply = apply
        self._timers: dict[str, _Timer] = {}
        self._order = 0

    def schedule(self, key: str, delay_ms: int, expire: Expire) -> None:
        self._order += 1
        self._timers[key] = _Timer(self.now_ms + delay_ms, self._order, expire)

    def cancel(self, key: str) -> None:
        self._timers.pop(key, None)

    def due_in_ms(self, key: str) -> int | None:
        """Time until a timer runs, None if there is no such timer."""
        timer = self._timers.get(key)
        return None if timer is None else timer.due_ms - self.now_ms

    def keys(self) -> list[str]:
        return list(self._timers)

    def advance(self, ms: int) -> list[Outcome]:
        """Let time pass: timers run at their time, in order, also those scheduled by others on the way."""
        end_ms, outcomes = self.now_ms + ms, []
        while (key := self._first_due(end_ms)) is not None:
            timer = self._timers.pop(key)
            self.now_ms = max(self.now_ms, timer.due_ms)
            outcome = timer.expire()
            outcomes.append(outcome)
            if self.apply is not None:
                self.apply(outcome)
        self.now_ms = end_ms
        return outcomes

    def _first_due(self, end_ms: int) -> str | None:
        due = [(timer.due_ms, timer.order, key) for key, timer in self._timers.items() if timer.due_ms <= end_ms]
        return min(due)[2] if due else None
