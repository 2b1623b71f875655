"""Ratios of Moldau to Kafka as bars in a picture (SVG): to the right of the middle Moldau has more, to the left less.

A bar is green where that is better: more records, or less of everything else. The scale is logarithmic, so that twice
as much and half as much are bars of one length.
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

WIDTH, LABEL_WIDTH, LINE_HEIGHT, TOP = 920, 430, 22, 54
HALF = (WIDTH - LABEL_WIDTH - 60) / 2
DOUBLINGS = 5
"""A ratio of 32, or a 32nd, fills its side; longer bars are cut there, and their number says it."""
GREEN, RED = "#2e7d4f", "#b3402f"


class Bar(NamedTuple):
    """One row of the picture."""

    name: str
    ratio: float
    more_is_better: bool

    @property
    def is_better(self) -> bool:
        return (self.ratio >= 1) == self.more_is_better


def write(path: Path, title: str, bars: Sequence[Bar]) -> None:
    """Draw the bars."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawn(title, bars))


def drawn(title: str, bars: Sequence[Bar]) -> str:
    """The picture; whoever cannot see it is read the same figures."""
    height = TOP + LINE_HEIGHT * len(bars) + 12
    said = "; ".join(f"{bar.name}: {bar.ratio:.2f}" for bar in bars)
    middle = LABEL_WIDTH + HALF
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="16" font-weight="600">{escape(title)}</text>',
        f'<text x="{middle - 8:.0f}" y="44" text-anchor="end" fill="#555555">less than Kafka</text>',
        f'<text x="{middle + 8:.0f}" y="44" fill="#555555">more than Kafka</text>',
        *(_row(bar, TOP + LINE_HEIGHT * number) for number, bar in enumerate(bars)),
        f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP - 4}" y2="{height - 8}" stroke="#222222"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(bar: Bar, y: float) -> str:
    doublings = max(-DOUBLINGS, min(DOUBLINGS, math.log2(bar.ratio)))
    length, middle = abs(doublings) / DOUBLINGS * HALF, LABEL_WIDTH + HALF
    x = middle if doublings > 0 else middle - length
    end, anchor = (middle + length + 6, "start") if doublings > 0 else (middle - length - 6, "end")
    base = y + LINE_HEIGHT - 7
    return (
        f'<text x="{LABEL_WIDTH - 12}" y="{base:.0f}" text-anchor="end">{escape(bar.name)}</text>'
        f'<rect x="{x:.1f}" y="{y + 3:.0f}" width="{max(length, 1):.1f}" height="{LINE_HEIGHT - 6}"'
        f' fill="{GREEN if bar.is_better else RED}"/>'
        f'<text x="{end:.1f}" y="{base:.0f}" text-anchor="{anchor}">{bar.ratio:.2f}</text>'
    )
