"""Hooks of the documentation's site: directories in the navigation, and links to files that are not pages.

`tours/*` in mkdocs.yml stands for all pages of that directory, so that a new page needs no line there; a directory
that is not there leaves nothing behind. A link that leaves `docs/` names a file of the repository: the site shows
its name.
"""

import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Fill the navigation's directories."""
    config.nav = filled(config.nav, Path(config.docs_dir))
    return config


def filled(entries: list[Any], docs: Path) -> list[Any]:
    """Entries with pages in the place of directories; an entry without pages goes."""
    made: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            made += pages(docs, entry)
        elif isinstance(entry, dict):
            [(title, below)] = entry.items()
            if isinstance(below, str) and below.endswith("/*"):
                below = pages(docs, below)
            elif isinstance(below, list):
                below = filled(below, docs)
            made += [{title: below}] if below else []
        else:
            made.append(entry)
    return made


def pages(docs: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(docs)) for path in docs.glob(f"{pattern}.md"))


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn links that leave the directory of the pages into names of files."""
    docs = Path(config.docs_dir).resolve()
    here = (docs / page.file.src_path).parent

    def shown(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        name = target.relative_to(docs.parent)
        return f"{link[1]} (`{name}`)" if str(name) != link[1].strip("`") else f"`{name}`"

    return LINK.sub(shown, markdown)
