"""Limit of the work that all groups of a broker may spend on matching patterns in an interval."""

ALLOWANCE_MS = 100
ALLOWED_WORK = 100_000
"""Look-ups (`TopicRegex.work`): some 10 ms, so that patterns never take more than a tenth of the event loop."""


class MatchingAllowance:
    """Filled up every ALLOWANCE_MS. The work for one name may overdraw it: that is 3 ms at most."""

    __slots__ = ("_filled_ms", "_left")

    def __init__(self) -> None:
        self._filled_ms = 0
        self._left = ALLOWED_WORK

    def is_left(self, now_ms: int) -> bool:
        if now_ms - self._filled_ms >= ALLOWANCE_MS or now_ms < self._filled_ms:
            self._filled_ms, self._left = now_ms, ALLOWED_WORK
        return self._left > 0

    def spend(self, work: int) -> None:
        self._left -= work

    def next_in_ms(self, now_ms: int) -> int:
        """Time until the allowance is filled again."""
        return max(1, self._filled_ms + ALLOWANCE_MS - now_ms)
