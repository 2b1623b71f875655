"""The timers of one classic group, by name."""

from collections.abc import Callable
from functools import partial

from moldau.coordinators.outcome import Outcome
from moldau.coordinators.timers import Expire, Timers

ExpireMember = Callable[[str], Outcome]


class ClassicTimers:
    """One for the parked joins, one for the syncs that are missing, and one for each member's session."""

    def __init__(self, group_id: str, timers: Timers) -> None:
        self._group_id = group_id
        self._timers = timers

    def schedule_join(self, delay_ms: int, expire: Expire) -> None:
        self._timers.schedule(f"join/{self._group_id}", delay_ms, expire)

    def cancel_join(self) -> None:
        self._timers.cancel(f"join/{self._group_id}")

    def schedule_sync(self, delay_ms: int, expire: Expire) -> None:
        self._timers.schedule(f"sync/{self._group_id}", delay_ms, expire)

    def cancel_sync(self) -> None:
        self._timers.cancel(f"sync/{self._group_id}")

    def schedule_session(self, member_id: str, timeout_ms: int, expire: ExpireMember) -> None:
        self._timers.schedule(self._session(member_id), timeout_ms, partial(expire, member_id))

    def cancel_session(self, member_id: str) -> None:
        self._timers.cancel(self._session(member_id))

    def _session(self, member_id: str) -> str:
        return f"session/{self._group_id}/{member_id}"
