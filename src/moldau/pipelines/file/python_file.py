"""Pipelines in Python: the same model as in YAML, with functions of data frames as views.

The law: nothing runs while the file is read; each call notes its arguments, and their lines.
"""

import ast
import importlib.machinery
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from moldau.pipelines.file.draft import Draft, Entry, ViewEntry
from moldau.pipelines.file.options import Given
from moldau.pipelines.file.problems import PipelineError, Place, Problem, suggestion
from moldau.pipelines.file.yaml_file import sql_from_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    View = Callable[..., DataFrame]
    F = TypeVar("F", bound=View)


class Pipeline:
    """Sources, views and sinks, declared one by one; `moldau pipeline run FILE` runs them.

    Options are those of the YAML file. A name that Python reserves takes a `_` at its end: `from_`, `as_`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        if options.get("dead_letters", "") is None:
            options["dead_letters"] = "none"
        place, given = _written({"name": name, **options})
        self._draft = Draft(place, given=given)
        self._flows: list[tuple[str, str, Place]] = []

    def source(self, name: str, **options: Any) -> None:
        """Declare a source of rows: `topic=`, `files=`, `postgres=` or `rate=`, and its options."""
        place, given = _written(options)
        self._draft.sources.append(Entry(name, given, place))

    def sink(self, name: str, **options: Any) -> None:
        """Declare a sink: `from_=` the views, and `topic=`, `postgres=` or another kind with its options."""
        place, given = _written(options)
        self._draft.sinks.append(Entry(name, given, place))

    @overload
    def view(self, name: "F") -> "F": ...
    @overload
    def view(self, name: str | None = None, *, watermark: str | None = None) -> "Callable[[F], F]": ...
    @overload
    def view(self, name: str, *, sql: str, watermark: str | None = None) -> None: ...
    @overload
    def view(self, name: str, *, file: str, watermark: str | None = None) -> None: ...
    def view(
        self, name: Any = None, *, sql: str | None = None, file: str | None = None, watermark: str | None = None
    ) -> Any:
        """A decorator for a function whose parameters are named after sources and views; or SQL, here or in a file."""
        place, given = _written({"sql": sql, "watermark": watermark})
        mark = given.get("watermark")
        if file is not None:
            self._draft.views.append(replace(sql_from_file(self._draft, name, place, file), watermark=mark))
            return None
        if sql is not None:
            literal = given["sql"].place if given["sql"].place != place else None
            self._draft.views.append(ViewEntry(name, place, sql, literal, watermark=mark))
            return None
        return self._view(name) if callable(name) else lambda function: self._view(function, name, mark)

    def table(self, **options: Any) -> "Callable[[F], F]":
        """A decorator: the function is a view, and a sink of the same name with these options writes it."""
        place, given = _written(options)

        mark = given.pop("watermark", None)

        def register(function: "F") -> "F":
            name = function.__name__
            self._draft.sinks.append(Entry(name, {"from": Given(name, place), **given}, place))
            return self._view(function, watermark=mark)

        return register

    def flow(self, into: str) -> "Callable[[F], F]":
        """A decorator: the function is a view, whose rows go to a sink declared elsewhere, with those of others."""
        place, _ = _written({})

        def register(function: "F") -> "F":
            self._flows.append((into, function.__name__, place))
            return self._view(function)

        return register

    def draft(self) -> Draft:
        """The declared pipeline as a draft, with the flows in their sinks."""
        draft = self._draft
        known = {entry.name for entry in draft.sinks}
        lost = [
            Problem(place, f"view {view!r} flows into {sink!r}, which is no sink", suggestion(sink, known))
            for sink, view, place in self._flows
            if sink not in known
        ]
        sinks = [self._with_flows(entry) for entry in draft.sinks]
        return replace(draft, sinks=sinks, problems=[*draft.problems, *lost])

    def _with_flows(self, sink: Entry) -> Entry:
        flows = [(view, place) for name, view, place in self._flows if name == sink.name]
        if not flows:
            return sink
        given = sink.given.get("from", Given([], flows[0][1]))
        first = [given.value] if isinstance(given.value, str) else list(given.value)
        merged = Given([*first, *(view for view, _ in flows)], given.place)
        return replace(sink, given={**sink.given, "from": merged})

    def _view(self, function: "F", name: str | None = None, watermark: Given | None = None) -> "F":
        code = function.__code__
        place = Place(code.co_filename, code.co_firstlineno)
        name = name or function.__name__
        parameters = inspect.signature(function).parameters.values()
        open_ended = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        if any(parameter.kind in open_ended for parameter in parameters):
            self._draft.problems.append(
                Problem(place, f"view {name!r}: its parameters must be names of sources and views, without '*'")
            )
        inputs = tuple(item.name for item in parameters if item.kind not in open_ended and item.default is item.empty)
        self._draft.views.append(ViewEntry(name, place, function=function, parameters=inputs, watermark=watermark))
        return function


def _written(options: Mapping[str, Any]) -> tuple[Place, dict[str, Given]]:
    """The place of the call, two frames up, and each option with its own line. None counts as not given."""
    frame = sys._getframe(2)
    place = Place(frame.f_code.co_filename, frame.f_lineno)
    lines = _keyword_lines(frame)
    given = {
        name.removesuffix("_"): Given(value, Place(place.file, lines.get(name, place.line)))
        for name, value in options.items()
        if value is not None
    }
    return place, given


def _keyword_lines(frame: FrameType) -> dict[str, int]:
    """Lines of the keywords of the call that the frame is in; empty if the source text cannot be found."""
    _, line, _, column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (node.end_lineno, node.end_col_offset) == (line, column):
            return {keyword.arg: keyword.lineno for keyword in node.keywords if keyword.arg}
    return {}


def read(path: Path) -> Draft:
    """The one Pipeline that the file makes. Raises PipelineError if it fails, or makes none or several."""
    module = _run(path)
    found = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    if len(found) == 1:
        return next(iter(found.values())).draft()
    if not found:
        hint = "pipeline = Pipeline('name')"
        raise PipelineError([Problem(Place(str(path), 1), "the file makes no Pipeline", hint)])
    second = list(found.values())[1].draft()
    raise PipelineError([Problem(second.place, "the file makes several Pipelines", "one file, one pipeline")])


def _run(path: Path) -> ModuleType:
    """Run the file with its directory in front of the import path, as Python does for a script."""
    name = f"pipeline_file_{path.stem}"
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = ModuleType(name)
    module.__file__ = str(path)
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    linecache.checkcache(str(path))
    sys.modules[name] = module
    try:
        code: CodeType = loader.source_to_code(path.read_bytes(), str(path))
        exec(code, vars(module))
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError([Problem(_failed_at(path, error), f"{type(error).__name__}: {_words(error)}")]) from error
    finally:
        # Spark sends the functions of a module that others cannot import by value, and this one they cannot
        del sys.modules[name]
    return module


def _words(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _failed_at(path: Path, error: Exception) -> Place:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return Place(str(path), error.lineno or 1)
    return last_line_in(str(path), error) or Place(str(path), 1)


def last_line_in(file: str, error: BaseException) -> Place | None:
    """The last line of the file that led to the error, however deep in other files it was raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return Place(file, lines[-1] or 1) if lines else None
