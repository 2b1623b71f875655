"""Speed of long work: so many records a second, and a line on the terminal that says how far it is."""

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

DRAWN_EVERY_S = 0.2


class Pace:
    """Brake that lets at most so many records a second pass; `rest` is called with the seconds to wait."""

    def __init__(
        self,
        per_second: float | None,
        rest: Callable[[float], object] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._rest = rest
        self._now_s = now_s
        self._begun_s = now_s()

    def wait(self, passed: int) -> None:
        """Rest until the record after `passed` records is due."""
        if self._per_second is None:
            return
        due_s = self._begun_s + passed / self._per_second
        while (left_s := due_s - self._now_s()) > 0:
            self._rest(left_s)


class Progress:
    """Line on standard error, drawn again and again; nothing where no person reads it."""

    def __init__(
        self,
        verb: str,
        total: int | None = None,
        stream: TextIO | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_drawn = self._stream.isatty()
        self._verb = verb
        self._total = total
        self._now_s = now_s
        self._begun_s = self._drawn_s = now_s()
        self._width = 0

    def show(self, done: int) -> None:
        """Draw the line, unless it was drawn a moment ago."""
        if self._is_drawn and self._now_s() - self._drawn_s >= DRAWN_EVERY_S:
            self._drawn_s = self._now_s()
            self._draw(self._line(done))

    def _line(self, done: int) -> str:
        rate = done / max(self._now_s() - self._begun_s, DRAWN_EVERY_S)
        of = "" if not self._total else f" of {self._total:,} ({min(100, 100 * done // self._total)} %)"
        return f"{self._verb} {done:,}{of} records, {rate:,.0f}/s"

    def _draw(self, line: str) -> None:
        self._stream.write(f"\r{line:{self._width}}")
        self._stream.flush()
        self._width = len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away again."""
        if self._width:
            self._stream.write(f"\r{'':{self._width}}\r")
            self._stream.flush()
