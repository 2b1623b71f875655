"""Files in, files and a terminal out, and the rate source: what needs no cluster."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.kinds import Context, sink_kind, source_kind
from tests.pipelines.specs import pipeline, sink, source
from tests.pipelines.streams import rows_of, run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def opened(spark: "SparkSession", spec: PipelineSpec, **options: Any) -> "tuple[DataFrame, DataFrame | None]":
    reading = source_kind("files").read(source("files", **options), Context(spark, spec, spec.storage))
    return reading.rows, reading.bad


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    directory = tmp_path / "incoming"
    directory.mkdir()
    return directory


def test_lines_of_text_are_rows_and_a_new_file_brings_more(
    spark: "SparkSession", storage: Path, incoming: Path
) -> None:
    (incoming / "a.txt").write_text("one\n\ntwo\n")
    rows, _ = opened(spark, pipeline(storage), files=str(incoming), format="text")
    first = rows_of(rows, storage / "checkpoint")
    assert sorted(row["value"] for row in first) == ["one", "two"]
    assert {Path(row["_file"]).name for row in first} == {"a.txt"}
    assert set(first[0]) == {"value", "_file", "_timestamp"}
    (incoming / "b.txt").write_text("three\n")
    os.utime(incoming / "b.txt", (0, 0))  # it was moved there, and is as old as ever
    assert [row["value"] for row in rows_of(rows, storage / "checkpoint")] == ["three"]


def test_lines_of_json_are_rows_and_bad_ones_dead_letters(spark: "SparkSession", storage: Path, incoming: Path) -> None:
    good, bad = {"name": "acme", "visits": 3}, '{"name": '
    (incoming / "a.json").write_text(f"{json.dumps(good)}\n{bad}\n{json.dumps({'visits': 4})}\n")
    schema = "name STRING, visits BIGINT"
    options = {"files": str(incoming / "*.json"), "schema": schema, "required": ["name"], "as": "table"}
    rows, letters = opened(spark, pipeline(storage), **options)
    assert [(row["name"], row["visits"]) for row in rows.collect()] == [("acme", 3)]
    assert letters is not None
    found = {bytes(row["value"]).decode(): row for row in letters.collect()}
    assert set(found) == {bad, '{"visits": 4}'}
    assert found[bad]["topic"].endswith("a.json")
    assert all(row["reason"] for row in found.values())


def test_the_header_of_a_csv_file_names_its_columns_and_a_line_break_in_quotes_tears_no_row(
    spark: "SparkSession", storage: Path, incoming: Path
) -> None:
    (incoming / "a.csv").write_text('last,visits,first\r\n"No\r\nvak",3,"J ""a"" n"\r\nBrown,x,Ann\r\n')
    (incoming / "b.csv").write_text("First,age,Last,Visits\nEve,7,White,4\nEve,7,White\n")
    (incoming / "c.csv").write_text("first,visits\nBob,5\n")
    (incoming / "d.csv").write_bytes(b"first,last,visits\nJ\xf6rg,Black,6\nZoe,,7\n")
    options = {"files": str(incoming), "format": "csv", "schema": "first STRING, last STRING, visits BIGINT"}
    rows, bad = opened(spark, pipeline(storage), **options, header=True)
    found = rows_of(rows, storage / "checkpoint")
    assert sorted((row["first"], row["last"] or "", row["visits"]) for row in found) == [
        ("Eve", "White", 4),
        ('J "a" n', "No\r\nvak", 3),
        ("Zoe", "", 7),
    ]
    assert set(found[0]) == {"first", "last", "visits", "_file", "_timestamp"}
    assert next(row["last"] for row in found if row["first"] == "Zoe") is None
    assert bad is not None
    letters = {(Path(row["topic"]).name, row["value"]): row["reason"] for row in rows_of(bad, storage / "bad")}
    assert letters == {
        ("a.csv", b"Ann,Brown,x"): "does not fit the schema of 3 fields (first, last, visits)",
        ("b.csv", b"Eve,7,White"): "3 fields under a header of 4",
        ("c.csv", b"Bob,5"): "the header of its file does not name 'last': first,visits",
        ("d.csv", b"J\xf6rg,Black,6"): "not UTF-8",
    }


def test_csv_files_may_have_their_own_signs_and_encoding_or_be_read_by_lines(
    spark: "SparkSession", storage: Path, incoming: Path
) -> None:
    (incoming / "a.csv").write_bytes("'J\\'ö\nrg';1\r\nEve;2".encode("windows-1252"))
    options = {"files": str(incoming), "format": "csv", "schema": "name STRING, n BIGINT", "as": "table"}
    signs = {"separator": ";", "quote": "'", "escape": "\\"}
    rows, _ = opened(spark, pipeline(storage), **options, **signs, encoding="windows-1252")
    assert sorted((row["name"], row["n"]) for row in rows.collect()) == [("Eve", 2), ("J'ö\nrg", 1)]
    rows, bad = opened(spark, pipeline(storage), **options, **signs, multiline=False)
    assert bad is not None
    assert ([row["name"] for row in rows.collect()], bad.count()) == (["rg'", "Eve"], 1)


def test_parquet_goes_round_through_sink_and_source_and_a_replayed_batch_adds_nothing(
    spark: "SparkSession", storage: Path, tmp_path: Path, incoming: Path
) -> None:
    from pyspark.sql import functions as F

    (incoming / "a.txt").write_text("one\ntwo\n")
    spec = pipeline(storage)
    context = Context(spark, spec, storage)
    lines = source_kind("files").read(source("files", files=str(incoming), format="text"), context).rows
    out = sink("parquet", parquet=str(tmp_path / "table"), partition_by="value", columns=["value", "_file"])
    checkpoint = storage / "checkpoints" / out.name
    assert sink_kind("parquet").guarantee == "exactly once"
    run_to_end(sink_kind("parquet").attach(out, lines, context), checkpoint)
    (checkpoint / "commits" / "0").unlink()  # as if killed after the write and before the note of it
    (checkpoint / "commits" / ".0.crc").unlink()
    run_to_end(sink_kind("parquet").attach(out, lines, context), checkpoint)

    rows, bad = opened(spark, spec, files=str(tmp_path / "table"), format="parquet")
    assert bad is None
    found = rows_of(rows, storage / "again")
    assert sorted(row["value"] for row in found) == ["one", "two"]
    table, _ = opened(spark, spec, files=str(tmp_path / "table"), format="parquet", **{"as": "table"})
    assert table.count() == 2
    assert (tmp_path / "table" / "value=one").is_dir()

    wider = sink("parquet", parquet=str(tmp_path / "table"), partition_by="value")
    (incoming / "b.txt").write_text("three\n")
    run_to_end(sink_kind("parquet").attach(wider, lines.withColumn("length", F.length("value")), context), checkpoint)
    table, _ = opened(spark, spec, files=str(tmp_path / "table"), format="parquet", **{"as": "table"})
    lengths = {row["value"]: row["length"] for row in table.collect()}
    assert lengths == {"one": None, "two": None, "three": 5}, "a column that came later is seen"

    (incoming / "c.txt").write_text("four\n")
    never_null = lines.withColumn("length", F.length("value")).withColumn("one", F.lit(1))
    run_to_end(sink_kind("parquet").attach(wider, never_null, context), checkpoint)
    table, _ = opened(spark, spec, files=str(tmp_path / "table"), format="parquet", **{"as": "table"})
    assert {row["value"]: row["one"] for row in table.collect()} == {"one": None, "two": None, "three": None, "four": 1}
    with pytest.raises(PipelineError, match="column 'length' is STRING, and INT in the files of"):
        sink_kind("parquet").attach(wider, lines.withColumn("length", F.lit("a")), context)


def test_a_directory_with_files_of_another_checkpoint_is_refused_and_one_that_is_gone_told_of(
    spark: "SparkSession", storage: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes, offsets = tmp_path / "table" / "_spark_metadata", storage / "checkpoints" / "out" / "offsets"
    notes.mkdir(parents=True)
    (notes / "9.compact").touch()
    out = sink("parquet", parquet=str(tmp_path / "table"))
    spec = pipeline(storage)
    [found] = sink_kind("parquet").check(out, spec)
    assert "has files of another checkpoint" in found.message
    assert len(list(sink_kind("parquet").check(sink("parquet", parquet=f"file://{tmp_path}/table"), spec))) == 1
    rows = source_kind("rate").read(source("rate", rate=1), Context(spark, spec, storage)).rows
    for address in (str(tmp_path / "table"), f"file://{tmp_path}/table"):
        with pytest.raises(PipelineError, match="another checkpoint"):
            sink_kind("parquet").attach(sink("parquet", parquet=address), rows, Context(spark, spec, storage))
    offsets.mkdir(parents=True)
    (offsets / "8").touch()
    assert len(list(sink_kind("parquet").check(out, spec))) == 1, "another checkpoint has come further"
    (offsets / "9").touch()
    assert list(sink_kind("parquet").check(out, spec)) == []

    shutil.rmtree(tmp_path / "table")
    (storage / "checkpoints" / "out" / "commits").mkdir()
    (storage / "checkpoints" / "out" / "commits" / "9").touch()
    sink_kind("parquet").attach(out, rows, Context(spark, spec, storage))
    assert caplog.messages == [
        f"visits.out: {tmp_path}/table was not there and is made anew, without the rows of before"
    ]


def test_the_rate_source_makes_rows_and_the_console_shows_them(spark: "SparkSession", storage: Path) -> None:
    spec = pipeline(storage)
    context = Context(spark, spec, storage)
    rows = source_kind("rate").read(source("rate", rate=1000), context).rows
    assert rows.columns == ["timestamp", "value"]
    out = sink("console", console=0, columns="value")
    query = sink_kind("console").attach(out, rows, context).trigger(processingTime="50 milliseconds").start()
    try:
        while not any(progress["numInputRows"] for progress in query.recentProgress):
            query.processAllAvailable()
    finally:
        query.stop()
    assert "console" in query.recentProgress[-1]["sink"]["description"].lower()


def test_problems_of_files_and_rates_are_told(storage: Path, tmp_path: Path) -> None:
    spec = pipeline(storage)
    nowhere = source("files", files=str(tmp_path / "nowhere"), format="text")
    [found] = source_kind("files").check(nowhere, spec)
    assert found.message == f"source 'rows': there is no directory {tmp_path / 'nowhere'}"
    assert list(source_kind("files").check(source("files", files="any/*.csv", format="text"), spec)) == []
    strict = source("files", files=str(tmp_path), format="parquet", required="name")
    [found] = source_kind("files").check(strict, spec)
    assert found.message == "source 'rows': parquet files take no 'required'"
    by_lines = source("files", files=str(tmp_path), format="csv", multiline=False, header=True, schema="a INT")
    [found] = source_kind("files").check(by_lines, spec)
    assert found.message == "source 'rows': 'header' needs the whole file, and 'multiline: false' divides it"
    [found] = source_kind("files").check(source("files", files=str(tmp_path), format="text", encoding="utf-16"), spec)
    assert found.message == "source 'rows': text files take no 'encoding'"
    for encoding in ("klingon", "rot13"):
        with pytest.raises(PipelineError, match="'encoding' must be an encoding such as UTF-8"):
            source("files", files=str(tmp_path), format="csv", encoding=encoding)
    [found] = source_kind("rate").check(source("rate", rate=1, **{"as": "table"}), spec)
    assert found.message == "source 'rows': 'rate' is only a stream"
    with pytest.raises(PipelineError, match="'rate' must be a whole number, 1 or more"):
        source("rate", rate=0)


SIGNS = {
    "quotes within a field are letters": 'a,b\n1,x"y"z\n2,"x"y\n',
    "a quote twice in quotes is one": 'a,b\n1,"x ""q"" y"\n2,""""\n',
    "separators and line breaks in quotes": 'a,b\n1,"x,y"\n2,"y\nz"\n',
    "a backslash is a letter": 'a,b\n1,"x \\ y"\n2,x\\y\n',
    "lines that end as in Windows": "a,b\r\n1,x\r\n2,y\r\n",
    "lines that end as once on Macs": "a,b\r1,x\r2,y\r",
    "empty lines": "a,b\n\n1,x\n\n\n2,y\n",
    "space around fields": 'a,b\n 1 , x \n2 ,"y" \n',
    "empty fields": 'a,b\n1,\n2,""\n,\n',
    "names in quotes and no end of the last line": '"a","b"\n1,x\n2,y',
    "a mark of the byte order": "\ufeffa,b\n1,x\n",
    "a header alone": "a,b\n",
}


def test_csv_is_read_as_sparks_own_reader_does(spark: "SparkSession", storage: Path, tmp_path: Path) -> None:
    for number, (name, words) in enumerate(SIGNS.items()):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "a.csv").write_bytes(words.encode())
        assert _csv(spark, storage, directory) == _spark_csv(spark, directory), name
    for encoding in ("utf-16", "iso-8859-1"):
        directory = tmp_path / encoding
        directory.mkdir()
        (directory / "a.csv").write_bytes('a,b\n1,"Müller, x\ny"\n2,z\n'.encode(encoding))
        found = _csv(spark, storage, directory, encoding=encoding)
        assert found == _spark_csv(spark, directory, encoding=encoding)
        assert found[0] == ("1", "Müller, x\ny")


def _csv(spark: "SparkSession", storage: Path, directory: Path, **more: Any) -> list[tuple[str, str]]:
    options = {"files": str(directory), "format": "csv", "header": True, "schema": "a STRING, b STRING", "as": "table"}
    rows, bad = opened(spark, pipeline(storage), **options, **more)
    assert bad is not None
    assert bad.count() == 0
    return [(row["a"], row["b"]) for row in rows.collect()]


def _spark_csv(spark: "SparkSession", directory: Path, **more: Any) -> list[tuple[str, str]]:
    reader = spark.read.option("multiLine", True).option("escape", '"').options(**more)
    return [(row["a"], row["b"]) for row in reader.csv(str(directory), "a STRING, b STRING", header=True).collect()]
