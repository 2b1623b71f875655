"""The tables of options in docs/pipelines.md, from their declarations: `python -m moldau.pipelines.option_tables FILE`.

The rest of the page is written by hand; a table stands between `<!-- options of ... -->` and `<!-- end -->`.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moldau.pipelines import kinds
from moldau.pipelines.file.draft import PIPELINE_OPTIONS
from moldau.pipelines.file.options import Choice, Option

TABLE = re.compile(r"(<!-- options of (\w+)(?: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def refresh(page: str) -> str:
    """The page with its tables made anew."""
    return TABLE.sub(lambda found: found[1] + _table(found[2], found[3]) + found[4], page)


def tables_of(page: str) -> set[tuple[str, str]]:
    """The kinds that the page has tables for: `("sink", "topic")`."""
    return {(group, name) for _, group, name, _ in TABLE.findall(page)}


def _table(group: str, name: str | None) -> str:
    common = {"source": kinds.COMMON_SOURCE_OPTIONS, "sink": kinds.COMMON_SINK_OPTIONS}.get(group, ())
    if group == "pipeline":
        return _rows(PIPELINE_OPTIONS)
    if name is None:
        return _rows(common)
    kind: Any = {"source": kinds.source_kind, "format": kinds.format_kind, "sink": kinds.sink_kind}[group](name)
    shared = {option.name for option in common}
    rows = _rows([option for option in kind.options if option.name not in shared])
    return f"Guarantee: {kind.guarantee}.\n\n{rows}" if group == "sink" else rows


def _rows(options: Iterable[Option]) -> str:
    lines = [f"| `{option.name}` | {_meaning(option)} | {_default(option)} |\n" for option in options]
    return "| option | meaning | default |\n|---|---|---|\n" + "".join(lines) if lines else "It has no options.\n"


def _meaning(option: Option) -> str:
    words = option.doc.replace("|", "\\|")
    allowed = option.parse.allowed if isinstance(option.parse, Choice) else ()
    return f"{words} ({', '.join(f'`{word}`' for word in allowed)})" if allowed else words


def _default(option: Option) -> str:
    if option.required:
        return "needed"
    if option.default in (None, "", {}, ()):
        return ""
    shown = str(option.default).lower() if isinstance(option.default, bool) else str(option.default)
    return f"`{shown}`"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(refresh(file.read_text()))
