"""A pipeline in YAML, read node by node so that everything keeps its line."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from moldau.pipelines.file.draft import PIPELINE_OPTIONS, VIEW_OPTIONS, Draft, Entry, ViewEntry
from moldau.pipelines.file.options import Given
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion

SECTIONS = {
    "sources": "where rows come from, by name",
    "views": "Spark SQL by name: a text, or `{file: counts.sql}`",
    "sinks": "where rows go, by name",
    "tables": "a view and the sink of its rows in one entry: `{sql: ..., delta: path}`",
}
SQL_KEYS = ("sql", "file")
VIEW_KEYS = (*SQL_KEYS, *(option.name for option in VIEW_OPTIONS))
FREE = "x-"
"""First character of a key without a meaning for us: a place for parts that several entries share by `&name` and `<<:
*name`."""


class Loader(yaml.SafeLoader):
    """YAML loader for which `on`, `no` and dates are texts, as in YAML 1.2; YAML 1.1 makes booleans and objects of
    them."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the parent's own way to say it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), ["t", "f"])


def read(path: Path) -> Draft:
    """The pipeline as it was written. Raises PipelineError if the file is not YAML at all."""
    with path.open(encoding="utf-8") as stream:
        try:
            loader = Loader(stream)
            return _Reading(loader, path).draft(loader.get_single_node())
        except (yaml.reader.ReaderError, UnicodeDecodeError) as error:
            raise PipelineError([Problem(Place(str(path), 1), f"not a text: {error.reason}")]) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            words = ", ".join(word for word in (error.context, error.problem) if word)
            raise PipelineError(
                [Problem(Place(str(path), mark.line + 1 if mark else 1), f"not YAML: {words}")]
            ) from None


class _Reading:
    def __init__(self, loader: Loader, path: Path) -> None:
        self._loader = loader
        self._path = path
        self._draft = Draft(Place(str(path), 1))

    def draft(self, root: yaml.Node | None) -> Draft:
        if not isinstance(root, yaml.MappingNode):
            raise PipelineError([Problem(self._draft.place, "the file is no pipeline", "it begins with `name:`")])
        for key, place, node in self._pairs(root):
            if key in SECTIONS:
                for name, at, entry in self._pairs(node, key):
                    getattr(self, f"_{key}")(name, at, entry)
            elif any(key == option.name for option in PIPELINE_OPTIONS):
                self._draft.given[key] = Given(self._value(node), place)
            elif not key.startswith(FREE):
                known = [*SECTIONS, *(option.name for option in PIPELINE_OPTIONS)]
                self._wrong(place, f"the pipeline has no option {key!r}", suggestion(key, known))
        return self._draft

    def _sources(self, name: str, place: Place, node: yaml.Node) -> None:
        self._draft.sources.append(Entry(name, self._options(node, f"source {name!r}"), place))

    def _sinks(self, name: str, place: Place, node: yaml.Node) -> None:
        self._draft.sinks.append(Entry(name, self._options(node, f"sink {name!r}"), place))

    def _views(self, name: str, place: Place, node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode):
            self._add_sql(name, place, node)
            return
        pairs = list(self._pairs(node, f"view {name!r}"))
        for key, at, _ in pairs:
            if key not in VIEW_KEYS:
                self._wrong(at, f"view {name!r} has no option {key!r}", suggestion(key, VIEW_KEYS))
        self._view_of(name, place, pairs)

    def _tables(self, name: str, place: Place, node: yaml.Node) -> None:
        pairs = list(self._pairs(node, f"table {name!r}"))
        self._view_of(name, place, pairs)
        given = {key: Given(self._value(item), at) for key, at, item in pairs if key not in VIEW_KEYS}
        self._draft.sinks.append(Entry(name, {"from": Given(name, place), **given}, place))

    def _view_of(self, name: str, place: Place, pairs: list[tuple[str, Place, yaml.Node]]) -> None:
        self._sql_of(name, place, {key: item for key, _, item in pairs})
        for key, at, item in pairs:
            if key == "watermark":
                self._draft.views[-1] = replace(self._draft.views[-1], watermark=Given(self._value(item), at))

    def _sql_of(self, name: str, place: Place, items: dict[str, yaml.Node]) -> None:
        if ("sql" in items) == ("file" in items):
            self._wrong(place, f"view {name!r} needs its SQL: one of 'sql' and 'file'")
            self._draft.views.append(ViewEntry(name, place))
        elif "sql" in items:
            self._add_sql(name, place, items["sql"])
        else:
            self._draft.views.append(sql_from_file(self._draft, name, place, str(self._value(items["file"]))))

    def _add_sql(self, name: str, place: Place, node: yaml.Node) -> None:
        sql = self._value(node)
        if not isinstance(sql, str) or not sql.strip():
            self._wrong(place, f"view {name!r} has no SQL")
            sql = None
        # the text of a block begins in the line after its `|`
        first = node.start_mark.line + (2 if getattr(node, "style", None) in ("|", ">") else 1)
        self._draft.views.append(ViewEntry(name, place, sql, Place(str(self._path), first)))

    def _options(self, node: yaml.Node, owner: str) -> dict[str, Given]:
        return {key: Given(self._value(item), place) for key, place, item in self._pairs(node, owner)}

    def _pairs(self, node: yaml.Node, owner: str = "") -> Iterable[tuple[str, Place, yaml.Node]]:
        """Keys with their places and values. `<<` takes over the keys of another mapping."""
        if isinstance(node, yaml.ScalarNode) and self._value(node) is None:
            return []
        if not isinstance(node, yaml.MappingNode):
            self._wrong(self._place(node), f"{owner} must be names with values, not {self._value(node)!r}")
            return []
        self._find_doubles(node)
        self._loader.flatten_mapping(node)
        return {str(key.value): (str(key.value), self._place(key), item) for key, item in node.value}.values()

    def _find_doubles(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                self._wrong(self._place(key), f"{name!r} is written twice, first in line {seen[name]}")
            seen.setdefault(name, key.start_mark.line + 1)

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_object(node, deep=True)

    def _place(self, node: yaml.Node) -> Place:
        return Place(str(self._path), node.start_mark.line + 1)

    def _wrong(self, place: Place, message: str, hint: str = "") -> None:
        self._draft.problems.append(Problem(place, message, hint))


def sql_from_file(draft: Draft, name: str, place: Place, file: str) -> ViewEntry:
    """A view whose SQL is in a file of its own, named from the pipeline's directory."""
    path = Path(draft.place.file).parent / file
    if not path.is_file():
        draft.problems.append(Problem(place, f"view {name!r}: there is no file {path}"))
        return ViewEntry(name, place)
    return ViewEntry(name, place, path.read_text(encoding="utf-8"), Place(str(path), 1))
