"""Charts as SVG without a script: a line, and beside it a table for people who do not see it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from moldau.console.cluster.history import Point
from moldau.console.web.words import moment

WIDTH, HEIGHT, EDGE = 600, 120, 4
TABLE_ROWS_MAX = 12


class Chart(NamedTuple):
    """A chart that a template shows."""

    title: str
    svg: Markup
    rows: Sequence[tuple[str, str]]
    """Time and figure, for the table: at most a dozen, spread over the time."""
    begin: str = ""
    end: str = ""
    highest: str = ""
    points: Sequence[Point] = ()
    """All figures, for programs."""


def chart(title: str, points: Sequence[Point], word: Callable[[float], str]) -> Chart:
    """A line over time from 0 to the highest figure."""
    if not points:
        return Chart(title, Markup(""), ())
    highest = max(point.value for point in points)
    said = (
        f"{title}: now {word(points[-1].value)}, highest {word(highest)}, lowest {word(min(p.value for p in points))}"
    )
    svg = Markup(
        '<svg viewBox="0 0 {w} {h}" role="img" aria-label="{said}" preserveAspectRatio="none">'
        '<path class="area" d="{area}"></path><path class="line" d="{line}"></path></svg>'
    ).format(w=WIDTH, h=HEIGHT, said=escape(said), **_paths(points, highest))
    step = -(-len(points) // TABLE_ROWS_MAX)
    rows = [(_clock(point), word(point.value)) for point in points[::-1][::step]]
    return Chart(title, svg, rows, _clock(points[0]), _clock(points[-1]), word(highest), points)


def _clock(point: Point) -> str:
    return moment(int(point.at_s * 1000))[11:19]


def _paths(points: Sequence[Point], highest: float) -> dict[str, str]:
    first, last = points[0].at_s, points[-1].at_s
    duration = max(last - first, 1e-9)
    scale = (HEIGHT - 2 * EDGE) / (highest or 1.0)
    places = [
        f"{(point.at_s - first) / duration * WIDTH:.1f} {HEIGHT - EDGE - point.value * scale:.1f}" for point in points
    ]
    if len(places) == 1:
        places.append(f"{WIDTH} {places[0].split()[1]}")
    line = "M" + "L".join(places)
    return {"line": line, "area": f"{line}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"}
