"""Progress in the terminal: one line a query, written over and over; where nobody watches, a few plain lines."""

import shutil
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import TextIO

from moldau.pipelines.run.progress import Figures, Progress

REFRESH_S = 0.2
PLAIN_S = 10.0
"""Seconds between two plain lines of a query."""
SETTLED = ("ended", "failed")
CLEAR_LINE = "\x1b[2K"


class Display:
    """Terminal output of a run. `say` prints any other text above the lines while they are refreshed."""

    def __init__(
        self, out: TextIO | None = None, clock: Callable[[], float] = monotonic, live: bool | None = None
    ) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._live = self._out.isatty() if live is None else live
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._refreshed = -REFRESH_S
        self._last: dict[str, tuple[float, int, str]] = {}
        self._shown: dict[str, Figures] = {}
        """The last figures of each query: several pipelines may share a terminal."""

    def say(self, line: str) -> None:
        with self._lock:
            self._erase()
            self._out.write(f"{line}\n")
            self._draw(self._lines)

    def show(self, progress: Progress) -> None:
        with progress.changed:
            figures = list(progress.figures.values())
        if self._live:
            with self._lock:
                self._shown.update({each.name: each for each in figures})
                figures = list(self._shown.values())
            self._refresh(figures)
        else:
            self._print(figures)

    def _refresh(self, figures: list[Figures]) -> None:
        settled = all(each.state in SETTLED for each in figures)
        with self._lock:
            if self._clock() - self._refreshed < REFRESH_S and not settled:
                return
            self._refreshed = self._clock()
            width = shutil.get_terminal_size().columns
            lines = [each[: width - 1] for each in table(figures)]
            if lines != self._lines:
                self._erase()
                self._draw(lines)

    def _erase(self) -> None:
        if self._live and self._lines:
            self._out.write(f"\x1b[{len(self._lines)}A\r" + f"{CLEAR_LINE}\n" * len(self._lines))
            self._out.write(f"\x1b[{len(self._lines)}A\r")

    def _draw(self, lines: list[str]) -> None:
        self._lines = lines if self._live else []
        for line in self._lines:
            self._out.write(f"{line}\n")
        self._out.flush()

    def _print(self, figures: list[Figures]) -> None:
        """Print a line when a query has changed: at its first batch, at its end, and else now and then."""
        with self._lock:
            for each in figures:
                at, batch, state = self._last.get(each.name, (-PLAIN_S, -1, ""))
                over = each.state in SETTLED and each.state != state
                if over or (each.batch != batch and self._clock() - at >= PLAIN_S):
                    self._last[each.name] = (self._clock(), each.batch, each.state)
                    self._out.write(f"{line(each)}\n")
            self._out.flush()


def table(figures: list[Figures]) -> list[str]:
    """One line a query, the columns below one another."""
    widest = max((len(each.name) for each in figures), default=0)
    return [line(each, widest) for each in figures]


def line(figures: Figures, width: int = 0) -> str:
    """The line of a query: `visits.table running batch 12  9,000 rows 5,000/s lag 120 0.80 s watermark 2026-11-16
    05:00:00 (1 d back) state 40 rows 1 kB`"""
    parts = [f"{figures.name:<{width}}", f"{figures.state:<7}"]
    if figures.batch >= 0:
        parts.append(f"batch {figures.batch:<4}")
        parts.append(f"{figures.rows:>7,} rows {figures.rows_per_second:>6,.0f}/s")
        parts.append("" if figures.lag is None else f"lag {figures.lag:<5,}")
        parts.append(f"{figures.batch_ms / 1000:5.2f} s")
        if figures.watermark:
            parts.append(f"watermark {figures.watermark.replace('T', ' ').partition('.')[0].rstrip('Z')}")
            parts.append("" if figures.delay_s is None else f"({span(figures.delay_s)} back)")
        if figures.state_rows:
            parts.append(f"state {figures.state_rows:,} rows {size(figures.state_bytes)}")
        if figures.late_rows:
            parts.append(f"{figures.late_rows:,} late")
    return " ".join(part for part in parts if part).rstrip()


def span(seconds: float) -> str:
    """A time in its two largest units: `7 d 3 h`, `2 min 5 s`."""
    rest, units = abs(int(seconds)), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        units.append(f"{count} {unit}" if count else "")
    first = next((number for number, words in enumerate(units) if words), len(units) - 1)
    return ("-" if seconds <= -1 else "") + (" ".join(filter(None, units[first : first + 2])) or "0 s")


def size(count: int) -> str:
    """A number of bytes: `1 kB`, `12.5 MB`."""
    for unit, length in (("GB", 10**9), ("MB", 10**6)):
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return f"{-(-count // 1000)} kB"
