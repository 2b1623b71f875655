"""Tests of pipelines: give rows to the sources, run to the end, compare the sinks.

    from moldau.testing.pipelines import pipeline

    def test_visits_are_counted_by_day():
        with pipeline("visits.yaml") as visits:
            visits.give("visits", [{"organisation": "acme", "at": "2026-11-16T08:00:00Z"}])
            visits.run()
            assert visits.rows("table") == [{"organisation": "acme", "day": "2026-11-16", "visits": 1}]

Everything is the pipeline's own but for the places: topics are those of a broker in this process, directories of files
are temporary, and nothing that the file names is touched. Spark starts with the first run of the process (some 10 s)
and stays; a run after that takes a few seconds.

- A source of JSON, CSV, text or raw values gets real records (or files) and decodes them. One whose schema is in a
  registry reads JSON instead, and one of another kind (a database) Parquet files: their columns are those of `schemas`,
  or else of the rows.
- A topic is written as it will be, with JSON in place of what a registry describes. Any other sink is kept in memory,
  with its `key`, `delete_when`, `newest_by` and `mode`.
"""

import atexit
import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.check import check_names, in_order
from moldau.pipelines.file.draft import Draft, Entry, build
from moldau.pipelines.file.files import read
from moldau.pipelines.file.options import Given
from moldau.pipelines.file.overrides import override
from moldau.pipelines.file.problems import PipelineError, near
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec, SourceSpec
from moldau.pipelines.formats import ddl
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run
from moldau.pipelines.spark.session import beside, session
from moldau.testing.brokers import BrokerInThread, broker
from moldau.testing.pipeline_rows import Letter, Row, Topics, as_file, as_record, of_record
from moldau.testing.pipeline_sinks import Kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Letter", "PipelineUnderTest", "pipeline"]

MASTER = "local[2]"
SPARK = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
"""Settings for small data: four tasks take longer than two."""
OF_A_PLACE = ("bootstrap", "client", "registry", "subject", "registry_client", "register", "message")
"""Options that say where data is and how it is reached: they mean nothing here."""
REGISTERED = ("avro", "protobuf")
"""Formats whose schema only a registry has."""


@contextmanager
def pipeline(
    file: str | Path,
    schemas: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    partitions: int = 1,
) -> "Iterator[PipelineUnderTest]":
    """The pipeline of the file, with a broker and a directory of its own. `schemas`: columns in Spark's DDL of sources
    whose file does not say them. `settings`: options as for `--set`. `partitions`: of each topic.

    Raises PipelineError with all problems of the file.
    """
    directory = Path(tempfile.mkdtemp(prefix="moldau-pipeline-"))
    try:
        with broker({"num.partitions": str(partitions)}) as kafka:
            yield PipelineUnderTest(_spec(file, kafka, directory, schemas or {}, settings or {}), schemas or {})
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class PipelineUnderTest:
    """A pipeline with sources that rows are given to, and sinks that can be looked at."""

    def __init__(self, spec: PipelineSpec, schemas: Mapping[str, str]) -> None:
        self.spec = spec
        self._schemas = schemas
        self._topics = Topics(spec.bootstrap)
        self._spark: SparkSession | None = None
        self._files = 0
        self._kept = {name: Kept(sink) for name, sink in spec.sinks.items() if sink.kind != "topic"}
        for source in spec.sources.values():
            if source.kind == "files":
                Path(source.options["files"]).mkdir(parents=True)
            for topic in source.options.get("topic") or ():
                self._topics.make(topic)
        for sink in spec.sinks.values():
            if sink.kind == "topic" and not sink.options["create"]:
                self._topics.make(sink.options["topic"])

    def give(self, source: str, rows: Iterable[Row], topic: str | None = None) -> None:
        """Give rows to a source, as they would come from its topic or in one more file.

        A row has the fields of a value; of a record also `_key`, `_headers` (name: text), `_timestamp`, `_partition`,
        and `_deleted: True` for one without value. Texts and bytes are values as they are, be they right or wrong.
        `topic`: which one, of a source with several or a pattern.
        """
        found = self._source(source)
        if found.kind == "topic":
            to = topic or next(iter(found.options["topic"] or ()), None)
            if to is None:
                raise ValueError(f"source {source!r} reads topics by a pattern: say which one with topic=")
            self._topics.send(to, [as_record(row, found) for row in rows])
            return
        self._files += 1
        path = Path(found.options["files"]) / f"{self._files:06}"
        if found.options["format"] == "parquet":
            self._write_parquet(path, found, list(rows))
        else:
            path.write_bytes(as_file(list(rows), found))

    def run(self) -> None:
        """Run until all that was given is read, on from where the last run ended. Raises RunFailed, PipelineError."""
        for source in self.spec.sources.values():
            is_parquet = source.kind == "files" and source.options["format"] == "parquet"
            if is_parquet and not any(Path(source.options["files"]).iterdir()):
                self.give(source.name, [])  # Spark wants to know the columns before the first row
        writers = {name: kept.attach for name, kept in self._kept.items()}
        display = Display(io.StringIO(), live=False)
        Run(self.spec, self.spark, ONCE, display=display, writers=writers).to_the_end()

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """The rows of a sink: of a table sorted by its key, of anything else as they came.

        Of a topic with a key and `cleanup.policy: compact` they are what compaction leaves. Values of topics are read
        from their JSON: times are texts there, and decimals numbers.
        """
        found = self._sink(sink)
        return self._kept[sink].rows() if sink in self._kept else of_record(self.records(sink), found)

    def records(self, sink: str) -> list[Any]:
        """The records of a sink that is a topic: `key`, `value`, `headers`, `partition`, `timestamp_ms`."""
        found = self._sink(sink)
        if found.kind != "topic":
            raise ValueError(f"sink {sink!r} is {found.kind}, and has no records: ask for its rows")
        return self._topics.read(found.options["topic"])

    def dead_letters(self) -> list[Letter]:
        """The records that could not be read, each with its value and the reason."""
        topic = self.spec.dead_letters
        return [Letter.of(record) for record in self._topics.read(topic)] if topic else []

    @property
    def spark(self) -> "SparkSession":
        """A session of this test alone, in the Spark of the process."""
        if self._spark is None:
            first = replace(self.spec, spark={**self.spec.spark, **SPARK}, storage=_lasting())
            self._spark = beside(session(first, MASTER), self.spec)
            self._spark.conf.set("spark.sql.shuffle.partitions", SPARK["spark.sql.shuffle.partitions"])
        return self._spark

    def _write_parquet(self, path: Path, source: SourceSpec, rows: list[Any]) -> None:
        columns = self._schemas.get(source.name)
        if not rows and columns is None:
            raise ValueError(f"source {source.name!r} got no rows, and nothing says its columns: name them in schemas=")
        frame = self.spark.createDataFrame([_complete(row, columns) for row in rows], columns)
        aside = path.with_name(f".{path.name}")  # a stream must not see it before it is whole
        frame.coalesce(1).write.parquet(str(aside))
        for part in aside.glob("*.parquet"):
            part.rename(path.with_suffix(".parquet"))
        shutil.rmtree(aside)

    def _source(self, name: str) -> SourceSpec:
        if name not in self.spec.sources:
            raise ValueError(f"there is no source {name!r} {_hint(name, self.spec.sources)}".rstrip())
        return self.spec.sources[name]

    def _sink(self, name: str) -> SinkSpec:
        if name not in self.spec.sinks:
            raise ValueError(f"there is no sink {name!r} {_hint(name, self.spec.sinks)}".rstrip())
        return self.spec.sinks[name]


def _hint(name: str, known: Iterable[str]) -> str:
    hint = near(name, list(known))
    return f"({hint})" if hint else ""


def _complete(row: Any, columns: str | None) -> Any:
    """The row with None for columns that it does not name."""
    names = [field.name for field in ddl.fields(columns)] if columns else []
    unknown = [name for name in row if names and name not in names]
    if unknown:
        raise ValueError(f"a row has {unknown[0]!r}, which is no column of: {columns}")
    return {**dict.fromkeys(names), **row}


# --- the file, with other places


def _spec(
    file: str | Path,
    kafka: BrokerInThread,
    directory: Path,
    schemas: Mapping[str, str],
    settings: Mapping[str, str],
) -> PipelineSpec:
    written = override(read(file), settings)
    for name in schemas:
        if name not in {entry.name for entry in written.sources}:
            raise ValueError(f"schemas=: there is no source {name!r}")
    found, problems = build(written)
    problems = in_order([*problems, *check_names(found, written.names() - {*found.sources, *found.views})])
    if problems:
        raise PipelineError(problems)
    draft = Draft(
        written.place,
        {
            **{name: given for name, given in written.given.items() if name not in OF_A_PLACE},
            "storage": Given(str(directory / "storage"), written.place),
        },
        [_elsewhere(entry, found.sources[entry.name], directory, schemas) for entry in written.sources],
        written.views,
        [_without_place(entry) for entry in written.sinks],
    )
    spec, problems = build(draft, kafka.bootstrap)
    if problems:
        raise PipelineError(problems)
    return spec


def _without_place(entry: Entry) -> Entry:
    """The entry, with JSON in place of a format that needs a registry."""
    given = {name: item for name, item in entry.given.items() if name not in OF_A_PLACE}
    if "format" in given and given["format"].value in REGISTERED:
        given["format"] = Given("json", entry.place)
    return replace(entry, given=given)


def _elsewhere(entry: Entry, source: SourceSpec, directory: Path, schemas: Mapping[str, str]) -> Entry:
    place = entry.place
    if source.kind == "topic":
        made = _without_place(entry)
        by_registry = source.options["format"] in REGISTERED or source.options.get("schema") == "registry"
        if by_registry or entry.name in schemas:
            made = replace(made, given={**made.given, "schema": Given(schemas.get(entry.name, "infer"), place)})
        return made
    files = {"files": Given(str(directory / "files" / entry.name), place)}
    if source.kind == "files":
        return replace(entry, given={**entry.given, **files})
    common = {name: item for name, item in entry.given.items() if name in ("as", "watermark", "transforms")}
    # one by one, so that rows of a database come in their order
    files["max_files_per_batch"] = Given(1, place)
    return replace(entry, given={**common, **files, "format": Given("parquet", place)})


@cache
def _lasting() -> Path:
    """The directory of Spark's log, which all tests of the process share."""
    made = Path(tempfile.mkdtemp(prefix="moldau-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
