"""Graphs as SVG without a script: boxes in columns, from who gives to who takes. A page has a table beside them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

NODES_MAX: Final = 80
BOX_WIDTH, BOX_HEIGHT, COLUMN_GAP, ROW_GAP, EDGE = 190, 36, 80, 14, 6
TITLE_MAX: Final = 22
PASSES: Final = 4


class Node(NamedTuple):
    """A box."""

    id: str
    kind: str
    """The class of the box in the style sheet."""
    title: str
    link: str = ""
    words: str = ""
    """A second line."""


Edge = tuple[str, str]
"""Ids of two nodes: the first gives, the second takes."""


def drawn(label: str, nodes: Sequence[Node], edges: Iterable[Edge]) -> Markup:
    """The graph; empty where nothing is connected."""
    by_id = {node.id: node for node in nodes[:NODES_MAX]}
    lines = sorted({edge for edge in edges if edge[0] != edge[1] and edge[0] in by_id and edge[1] in by_id})
    if not lines:
        return Markup("")
    columns = _columns(list(by_id), lines)
    places = {
        id_: (
            EDGE + column * (BOX_WIDTH + COLUMN_GAP),
            EDGE + row * (BOX_HEIGHT + ROW_GAP),
        )
        for column, ids in enumerate(columns)
        for row, id_ in enumerate(ids)
    }
    width = 2 * EDGE + len(columns) * (BOX_WIDTH + COLUMN_GAP) - COLUMN_GAP
    height = 2 * EDGE + max(map(len, columns)) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP
    parts = [
        Markup(
            '<svg class="graph" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" aria-label="{2}">'
        ).format(width, height, label),
        Markup(
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="arrow" d="M0 0L8 4L0 8Z"></path></marker></defs>'
        ),
        *(_line(places[begin], places[end]) for begin, end in lines),
        *(_box(by_id[id_], place) for id_, place in places.items()),
        Markup("</svg>"),
    ]
    return Markup("").join(parts)


def _line(begin: tuple[int, int], end: tuple[int, int]) -> Markup:
    x, y = begin[0] + BOX_WIDTH, begin[1] + BOX_HEIGHT // 2
    to_x, to_y = end[0], end[1] + BOX_HEIGHT // 2
    bend = COLUMN_GAP // 2 if to_x > x else COLUMN_GAP
    path = f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
    return Markup('<path class="edge" marker-end="url(#arrow)" d="{}"></path>').format(path)


def _box(node: Node, place: tuple[int, int]) -> Markup:
    x, y = place
    title = node.title if len(node.title) <= TITLE_MAX else f"{node.title[: TITLE_MAX - 1]}…"
    middle = 22 if not node.words else 16
    text = Markup('<text x="{}" y="{}">{}</text>').format(x + 10, y + middle, title)
    if node.words:
        text += Markup('<text class="words" x="{}" y="{}">{}</text>').format(
            x + 10, y + 30, node.words[: TITLE_MAX + 6]
        )
    box = Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="{}"></rect>').format(
        x, y, BOX_WIDTH, BOX_HEIGHT, 6 if node.kind == "topic" else BOX_HEIGHT // 2
    )
    whole = Markup("<title>{}</title>").format(f"{node.kind} {node.title} {node.words}".strip())
    if node.link:
        return Markup('<a href="{}" class="{}">{}{}{}</a>').format(node.link, escape(node.kind), whole, box, text)
    return Markup('<g class="{}">{}{}{}</g>').format(escape(node.kind), whole, box, text)


def _columns(ids: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """Ids by column: each to the right of all that give to it. An edge that closes a circle does not count."""
    givers: dict[str, list[str]] = {id_: [] for id_ in ids}
    takers: dict[str, list[str]] = {id_: [] for id_ in ids}
    for begin, end in _without_circles(ids, edges):
        givers[end].append(begin)
        takers[begin].append(end)
    connected = {id_ for edge in edges for id_ in edge}
    depth: dict[str, int] = {}
    for id_ in _in_order(ids, takers):
        depth[id_] = max((depth[giver] + 1 for giver in givers[id_]), default=0)
    for id_ in reversed(_in_order(ids, takers)):  # one whom nobody gives to stands beside the first who takes from him
        if not givers[id_] and takers[id_]:
            depth[id_] = min(depth[taker] for taker in takers[id_]) - 1
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for id_ in ids:
        if id_ in connected:
            columns[depth[id_]].append(id_)
    columns = [column for column in columns if column]
    for number in range(PASSES):  # those who are connected come to lie near each other
        beside = givers if number % 2 == 0 else takers
        for column in columns:
            rows = {id_: row for other in columns for row, id_ in enumerate(other)}
            column.sort(key=lambda id_: _middle(id_, beside, rows))
    return columns


def _middle(id_: str, beside: Mapping[str, list[str]], rows: Mapping[str, int]) -> float:
    others = beside[id_]
    return sum(rows[other] for other in others) / len(others) if others else rows[id_]


def _without_circles(ids: Sequence[str], edges: Sequence[Edge]) -> list[Edge]:
    takers: dict[str, list[str]] = {id_: [] for id_ in ids}
    for begin, end in edges:
        takers[begin].append(end)
    kept: list[Edge] = []
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for root in ids:
        stack = [] if root in state else [(root, iter(takers[root]))]
        state.setdefault(root, 1)
        while stack:
            at, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[at] = 2
                stack.pop()
            elif state.get(following) != 1:
                kept.append((at, following))
                if following not in state:
                    state[following] = 1
                    stack.append((following, iter(takers[following])))
    return kept


def _in_order(ids: Sequence[str], takers: Mapping[str, list[str]]) -> list[str]:
    """Ids, each before all that it gives to; there are no circles."""
    left = dict.fromkeys(ids, 0)
    for others in takers.values():
        for each in others:
            left[each] += 1
    ready = [id_ for id_ in ids if left[id_] == 0]
    for id_ in ready:
        for each in takers[id_]:
            left[each] -= 1
            if left[each] == 0:
                ready.append(each)
    return ready
