"""Dead letters of files: shown, and put back as a new file."""

import gzip
import io
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.files import load
from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.redrive import Redriven, redrive, said_by
from moldau.pipelines.run.redrive_files import put_back, refusal
from moldau.pipelines.run.runner import ONCE, Run
from tests.pipelines.clusters import Cluster
from tests.pipelines.specs import source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
name: {name}
bootstrap: {bootstrap}
sources:
  people: {{files: in, format: csv, header: true, encoding: windows-1252, schema: "name STRING, born INT"}}
sinks:
  table: {{from: people, sqlite: out.db, table: people}}
"""


def test_bad_records_of_files_are_shown_and_go_back_once_the_pipeline_is_mended(
    spark: "SparkSession", moldau_cluster_only: Cluster, tmp_path: Path
) -> None:
    cluster, name = moldau_cluster_only, moldau_cluster_only.new_topic("people")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first file.csv").write_bytes("born,name\n1970,Eve\n19?0,Jörg\n".encode("windows-1252"))
    (tmp_path / "in" / "b.csv").write_text("name\nBob\n")
    file = tmp_path / "people.yaml"
    file.write_text(PIPELINE.format(name=name, bootstrap=cluster.bootstrap))

    def run() -> list[tuple[str, Any]]:
        Run(load(file), spark, ONCE, display=Display(io.StringIO(), live=False)).to_the_end()
        with sqlite3.connect(tmp_path / "out.db") as connection:
            return connection.execute("SELECT name, born FROM people ORDER BY name").fetchall()

    assert run() == [("Eve", 1970)]
    shown = list(said_by(redrive(load(file), dry_run=True), load(file), dry_run=True))
    assert len(shown) == 3
    assert shown[0].endswith("first%20file.csv: does not fit the schema of 2 fields (name, born): Jörg,19?0")
    assert shown[1] == f"1 would be sent back to {tmp_path}/in"
    mend = f"its fields could not be told apart: mend {tmp_path}/in/b.csv, and give it a new name"
    assert shown[2] == f"1 still in {name}.dead-letters: {mend}"

    file.write_text(file.read_text().replace("born INT", "born STRING"))
    done = redrive(load(file))
    assert done == Redriven(sent={f"{tmp_path}/in": 1}, stuck={mend: 1})  # type: ignore[arg-type]
    assert run() == [("Eve", 1970), ("Jörg", "19?0")]
    assert next(said_by(redrive(load(file)), load(file), dry_run=False)).startswith("nothing to send back")


# --- without Spark


def _files(where: Path | str, **options: Any) -> SourceSpec:
    return source("files", "people", files=str(where), **options)


def _new(folder: Path, old: Path) -> Path:
    [made] = set(folder.iterdir()) - {old}
    return made


def test_a_new_file_has_the_lines_of_the_letters_in_the_kind_of_the_old_one(tmp_path: Path) -> None:
    old = tmp_path / "a.json.gz"
    old.touch()
    people = _files(tmp_path / "*.json.gz", schema="name STRING")
    assert refusal(people, old.as_uri(), "not JSON") is None
    put_back(people, old.as_uri(), [b"{}", json.dumps({"name": "Eve"}).encode()])
    made = _new(tmp_path, old)
    assert made.name.startswith("a.redriven-")
    assert made.name.endswith(".json.gz")
    assert gzip.decompress(made.read_bytes()) == b'{}\n{"name": "Eve"}\n'


def test_letters_go_back_into_the_directory_of_their_source_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
    people = _files(inside / "*", schema="name STRING")
    assert refusal(people, (inside / "a.json").as_uri(), "bad") is None
    for address in (outside / "a.json", inside / ".." / "out" / "a.json", inside / "gone" / "a.json"):
        assert refusal(people, f"file://{address}", "bad") == (
            f"{address.parent} is not in the directory of source 'people'"
        )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://bucket/a.json", "s3://bucket/a.json is not on this machine"),
        ("file://{here}/a.json.zst", "would not take a file beside"),
        ("file://{here}/b.json", "would not take a file beside"),
    ],
)
def test_what_cannot_go_back_is_said(tmp_path: Path, address: str, words: str) -> None:
    found = refusal(_files(tmp_path / "a.*", schema="name STRING"), address.replace("{here}", str(tmp_path)), "bad")
    assert found is not None
    assert words in found


def test_letters_of_a_source_that_is_no_more_stay() -> None:
    assert (
        refusal(None, "file:///in/a.json", "bad") == "the pipeline has no source of files that reads file:///in/a.json"
    )
    assert refusal(source("rate", "people", rate=1), "file:///in/a.json", "bad") is not None
