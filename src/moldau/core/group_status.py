"""Whether a consumer group keeps up, by Burrow's rules: no threshold, only what its commits and its lag did lately.

In this order, for each partition: without lag all is well; a consumer that has not committed for longer than its last
commits took together has stopped, unless there was nothing to read until a moment ago; one that was at the end at any
of its last commits is well; then an offset that went back, offsets that stand still, and a lag that never shrinks are
told. Commits are looked at when somebody scrapes, so that a commit costs nothing.
"""

from array import array
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

COMMITS_MAX: Final = 10
STOPPED_MS_MIN: Final = 60_000
"""A consumer that commits every second is not called stopped after ten."""


class Rule(IntEnum):
    """The rule that says how a partition is; the worse the greater."""

    OK = 0
    WARN = 1
    STALL = 2
    REWIND = 3
    STOP = 4

    @property
    def severity(self) -> int:
        """0: well, 1: the lag grows, 2: an error."""
        return min(self.value, 2)


class Commit(NamedTuple):
    """A commit that a scrape has seen, and the lag at that time."""

    offset: int
    timestamp_ms: int
    lag: int


class Window:
    """The last commits of a group to a partition, and its lag at the last scrapes: as plain numbers, as there is a
    window for each offset of each group."""

    __slots__ = ("_commits", "_lags")

    def __init__(self) -> None:
        self._commits = array("q")
        self._lags = array("q")

    @property
    def commits(self) -> list[Commit]:
        numbers, fields = self._commits, len(Commit._fields)
        return [Commit(*numbers[start : start + fields]) for start in range(0, len(numbers), fields)]

    @property
    def lags(self) -> Sequence[int]:
        return self._lags

    def saw(self, offset: int, timestamp_ms: int, lag: int) -> None:
        """Take what a scrape sees; a commit that it has seen before is the same one."""
        commits, fields = self._commits, len(Commit._fields)
        if tuple(commits[-fields:][:2]) != (offset, timestamp_ms):
            commits.extend((offset, timestamp_ms, lag))
            del commits[: -fields * COMMITS_MAX]
        self._lags.append(lag)
        del self._lags[:-COMMITS_MAX]

    def rule(self, now_ms: int) -> Rule:
        """The rule that fires."""
        return rule_for(self.commits, self._lags, now_ms)


def rule_for(commits: Sequence[Commit], lags: Sequence[int], now_ms: int) -> Rule:
    """The first rule that fires, for commits and lags from the oldest to the newest."""
    if not commits or not lags or lags[-1] == 0:
        return Rule.OK
    first, last = commits[0], commits[-1]
    silence_ms_max = max(last.timestamp_ms - first.timestamp_ms, STOPPED_MS_MIN)
    if now_ms - last.timestamp_ms > silence_ms_max and 0 not in lags:
        return Rule.STOP
    if len(commits) < 2 or any(commit.lag == 0 for commit in commits):
        return Rule.OK
    pairs = list(pairwise(commits))
    if any(after.offset < before.offset for before, after in pairs):
        return Rule.REWIND
    if first.offset == last.offset:
        return Rule.STALL
    is_growing = len(commits) == COMMITS_MAX and all(after.lag >= before.lag for before, after in pairs)
    return Rule.WARN if is_growing else Rule.OK
