"""Figures of the last hour, in rings of a bounded length."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

KEPT_S = 3600.0
POINTS_MAX = 720
"""Points of a series: one in five seconds for an hour."""
ENDS_MAX = 200
"""Ends of a partition that are kept; one that stands still needs one."""


class Point(NamedTuple):
    """A figure at a time."""

    at_s: float
    value: float


class Series:
    """Figures of the last hour."""

    __slots__ = ("_points",)

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, at_s: float, value: float) -> None:
        points = self._points
        while points and points[0].at_s < at_s - KEPT_S:
            points.popleft()
        # a console that looks more often than every 5 s keeps an hour, too: it replaces the newest point
        spacing_s = KEPT_S / POINTS_MAX
        if len(points) > 1 and at_s - points[-2].at_s < spacing_s:
            points.pop()
        points.append(Point(at_s, value))

    def points(self) -> Sequence[Point]:
        return tuple(self._points)

    @property
    def last(self) -> float:
        return self._points[-1].value if self._points else 0.0

    def change_per_s(self, over_s: float) -> float | None:
        """Change in a second over the last `over_s`; None where too little is known."""
        if len(self._points) < 2:
            return None
        last = self._points[-1]
        first = next(point for point in self._points if point.at_s >= last.at_s - over_s)
        if last.at_s - first.at_s < 1.0:
            return None
        return (last.value - first.value) / (last.at_s - first.at_s)


class Ends:
    """The end of a partition over time, from which the age of an offset is estimated."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    def saw(self, at_s: float, end: int) -> None:
        if self._ends and end < self._ends[-1]:  # it was truncated, or the topic is another one
            self._times.clear()
            self._ends.clear()
        if not self._ends or end > self._ends[-1]:
            self._times.append(at_s)
            self._ends.append(end)
        if len(self._ends) > ENDS_MAX:
            del self._times[0], self._ends[0]

    def age_s(self, offset: int, now_s: float) -> float | None:
        """Seconds since the record at `offset` was there; None: it is older than what was seen."""
        index = bisect_right(self._ends, offset)
        if index == 0 or index == len(self._ends):
            return None
        return max(0.0, now_s - self._times[index])
