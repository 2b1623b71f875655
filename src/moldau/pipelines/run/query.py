"""Questions to a pipeline, whether it runs or not: rows of its sinks, of the tables that it joins, of Spark's state.

- A sink is asked by its name, where its rows are (`stores.py`): no Spark is started.
- A source that is a table is asked by its name: the kept files, and what the topic has since.
- The state of a sink's views is `SINK.state`: what Spark's own reader finds in the checkpoint, as of the last batch
  that was committed. Where there are several parts it is `SINK.state.2`, `SINK.state.left`, `SINK.state.NAME`.

The last two start a Spark, for some ten seconds. Nothing is written: a run does not notice.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import near
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.kinds import Context, source_kind
from moldau.pipelines.run import stores
from moldau.pipelines.run.failures import explain
from moldau.pipelines.run.runner import copy_schemas
from moldau.pipelines.run.storage import Storage
from moldau.pipelines.spark.session import session
from moldau.pipelines.topics import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MASTER = "local[2]"
STATE = ".state"
JOIN_SIDES = ("left", "right")


class QueryError(Exception):
    """Error: the question cannot be answered; the message is one line."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the state of a sink: options for Spark's reader."""

    sink: str
    operator: str
    options: Mapping[str, str]


def askable(spec: PipelineSpec) -> dict[str, str]:
    """The names that can be asked, each with what it is."""
    sinks = {name: f"sink, {sink.kind}" for name, sink in spec.sinks.items() if sink.kind in stores.READERS}
    sources = {
        name: f"source, {source.kind} as a table"
        for name, source in spec.sources.items()
        if source.options.get("as") == "table"
    }
    state = {name: f"state of {part.sink}, {part.operator}" for name, part in parts(spec).items()}
    return {**sources, **sinks, **state}


def ask(
    spec: PipelineSpec, name: str, key: Sequence[str], limit: int, spark: "SparkSession | None" = None
) -> list[dict[str, Any]]:
    """The rows of a table, or those of a key; by a Spark that is there, or else by one of its own. Raises
    QueryError."""
    known = askable(spec)
    if name not in known:
        listed = ", ".join(known) or "none yet: the pipeline has not run"
        raise QueryError(f"there is no table {name!r} to ask ({near(name, list(known)) or f'there are: {listed}'})")
    if name in spec.sinks:
        try:
            return stores.rows(spec, spec.sinks[name], key, limit)
        except stores.StoreError as error:
            raise QueryError(f"sink {name!r}: {error}") from error
    with tempfile.TemporaryDirectory(prefix="moldau-query-") as made:
        apart = replace(spec, storage=Path(made))  # its log, and schemas that are found, are of this question alone
        own = spark is None
        spark = spark or session(apart, MASTER)
        try:
            return _by_spark(spec, apart, name, key, limit, spark)
        finally:
            if own:
                spark.stop()


# --- Spark's state


def parts(spec: PipelineSpec) -> dict[str, Part]:
    """The parts of the state of all sinks, by their names; none before a first batch."""
    found: dict[str, Part] = {}
    for name in spec.sinks:
        operators = sorted(Storage(spec.storage).checkpoint(name).glob("state/*/_metadata"))
        for directory in operators:
            number = directory.parent.name
            base = f"{name}{STATE}" + ("" if number == "0" else f".{number}")
            found.update(_of_operator(name, base, number, _metadata(directory)))
    return found


def _of_operator(sink: str, base: str, number: str, told: Mapping[str, Any]) -> Iterator[tuple[str, Part]]:
    operator = str(told.get("operatorInfo", {}).get("operatorName", "state"))
    options = {"operatorId": number}
    if operator == "symmetricHashJoin":
        for side in JOIN_SIDES:
            yield f"{base}.{side}", Part(sink, operator, {**options, "joinSide": side})
        return
    properties = json.loads(told.get("operatorPropertiesJson") or "{}")
    variables = [each["stateName"] for each in properties.get("stateVariables") or ()]
    for variable in variables:
        if not variable.startswith("$"):  # Spark's own, of timers
            yield f"{base}.{variable}", Part(sink, operator, {**options, "stateVarName": variable})
    if not variables:
        yield base, Part(sink, operator, options)


def _metadata(directory: Path) -> dict[str, Any]:
    """Notes of Spark's about an operator: one file, or one for each change of it, with its version in front."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    for file in reversed(files):
        told = file.read_text("utf-8", errors="replace").partition("{")
        try:
            found = json.loads(told[1] + told[2])
        except ValueError:
            continue
        return found if isinstance(found, dict) else {}
    return {}


# --- by Spark


def _by_spark(
    spec: PipelineSpec, apart: PipelineSpec, name: str, key: Sequence[str], limit: int, spark: "SparkSession"
) -> list[dict[str, Any]]:
    copy_schemas(spec, Storage(apart.storage))
    part = parts(spec).get(name)
    try:
        if part is not None:
            frame = _state(spec, part, spark)
        else:
            frame = _table(spec.sources[name], Context(spark, apart, spec.storage))
        where = _is_key(name, frame, key, part is not None)
        found = (frame if where is None else frame.where(where)).limit(limit).toArrow().to_pylist()
    except (QueryError, ClusterError):
        raise
    except Exception as error:  # whatever Spark raises is about this question
        raise QueryError(f"{name!r} cannot be read: {explain(error)}") from error
    return [_flat(row) for row in found] if part else found


def _state(spec: PipelineSpec, part: Part, spark: "SparkSession") -> "DataFrame":
    checkpoint = Storage(spec.storage).checkpoint(part.sink)
    return spark.read.format("statestore").options(**part.options).load(str(checkpoint))


def _table(source: SourceSpec, context: Context) -> "DataFrame":
    from moldau.pipelines.sources import kept_table

    if source.kind == "topic":
        return kept_table.look(source, context).rows
    return source_kind(source.kind).read(source, context).rows


def _is_key(name: str, frame: "DataFrame", key: Sequence[str], is_state: bool) -> "Column | None":
    """The condition that a row is of the key: its `_key`; of the state the columns of its key, in their order."""
    from pyspark.sql import functions as F

    if not key:
        return None
    columns = [f"key.`{each}`" for each in frame.schema["key"].dataType.names] if is_state else ["_key"]  # type: ignore[attr-defined]
    if not is_state and "_key" not in frame.columns:
        columns = [f"`{each}`" for each in frame.columns[: len(key)]]
    if len(key) > len(columns):
        raise QueryError(f"{name!r} has a key of {len(columns)} columns, not {len(key)}")
    condition = F.lit(True)
    for column, value in zip(columns, key, strict=False):
        condition = condition & (F.col(column).cast("string") == value)
    return condition


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the state: the fields of its key and of its value side by side."""
    made: dict[str, Any] = {}
    for name in ("key", "value"):
        found = row.get(name)
        made.update(found if isinstance(found, dict) else {name: found})
    return {**made, **{name: value for name, value in row.items() if name not in ("key", "value", "partition_id")}}
