"""Sources and sinks of other packages, found by their entry points."""

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines import kinds
from moldau.pipelines.file.files import load
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import ONCE, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = """
from moldau.pipelines.file.options import Option, text, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.kinds import Reading
from moldau.pipelines.sinks import batches


class Numbers:
    options = (Option("numbers", text, "the directory"), Option("more", whole, "added to each", default=0))

    def check(self, source, pipeline):
        if source.options["more"] > 100:
            yield Problem(source.places["more"], f"source {source.name!r}: that is too much")

    def read(self, source, context):
        lines = context.spark.readStream.text(source.options["numbers"])
        return Reading(lines.selectExpr(f"CAST(value AS INT) + {source.options['more']} AS number"))


class Lines:
    guarantee = "at least once"
    options = (Option("lines", text, "the file"), batches.COLUMNS)

    def check(self, sink, pipeline):
        return iter(())

    def attach(self, sink, rows, context):
        return batches.attach(sink, batches.select(sink, rows), context, Writer(sink.options["lines"]))


class Writer:
    def __init__(self, path):
        self.path = path

    def write(self, rows, batch):
        with open(self.path, "a") as file:
            file.writelines(f"{row}\\n" for row in rows.to_pylist())
        return True


NUMBERS, LINES, NOTHING = Numbers(), Lines(), object()
"""
ENTRY_POINTS = """
[moldau.pipelines.sources]
numbers = strange_kinds:NUMBERS
topic = strange_kinds:NUMBERS
broken = not_there:KIND
other = strange_kinds:NUMBERS

[moldau.pipelines.sinks]
lines = strange_kinds:LINES
nothing = strange_kinds:NOTHING
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package with kinds, in a directory on the import path as an installer would have put it there."""
    path = tmp_path_factory.mktemp("site")
    (path / "strange_kinds.py").write_text(CODE)
    facts = path / "strange_kinds-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-kinds\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path))
        _forget()
        yield path
    _forget()


def _forget() -> None:
    kinds._points.cache_clear()
    kinds._foreign.cache_clear()


def test_a_source_and_a_sink_of_another_package_are_used_like_ours(
    spark: "SparkSession", package: Path, tmp_path: Path
) -> None:
    assert package.is_dir()
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    (numbers / "a.txt").write_text("1\n2\n")
    file = tmp_path / "p.yaml"
    file.write_text(f"""
name: strange
sources: {{n: {{numbers: {numbers}, more: 10}}}}
views: {{doubled: SELECT number * 2 AS number FROM n}}
sinks: {{out: {{from: doubled, lines: {tmp_path / "out.txt"}}}}}
""")
    out = io.StringIO()
    Run(load(file), spark, ONCE, display=Display(out, live=False)).to_the_end()
    assert (tmp_path / "out.txt").read_text() == "{'number': 22}\n{'number': 24}\n"
    assert "strange.out: to lines, at least once" in out.getvalue()


MISTAKES = {
    "{numbers: x, mor: 1}": "source 'n' has no option 'mor' (did you mean 'more'?)",
    "{broken: x}": "source 'n': 'broken' of the package 'strange-kinds' cannot be loaded: ModuleNotFoundError",
    "{other: x}": "source 'n': 'other' of the package 'strange-kinds' must have an option 'other' as its first",
    "{number: x}": "source 'n' does not say what kind it is (did you mean 'numbers'?)",
}


@pytest.mark.parametrize("written", MISTAKES)
def test_a_mistake_with_a_kind_of_another_package_is_one_line(written: str, package: Path, tmp_path: Path) -> None:
    assert package.is_dir()
    file = tmp_path / "p.yaml"
    file.write_text(f"name: p\nsources:\n  n: {written}\nsinks:\n  out: {{from: n, console: 1}}\n")
    with pytest.raises(PipelineError) as refused:
        load(file)
    assert MISTAKES[written] in str(refused.value)


def test_what_is_no_kind_is_refused_and_names_of_ours_stay_ours(package: Path) -> None:
    assert package.is_dir()
    with pytest.raises(kinds.BadKind, match="'nothing' of the package 'strange-kinds' has no 'options'"):
        kinds.sink_kind("nothing")
    assert type(kinds.source_kind("topic")).__module__ == "moldau.pipelines.sources.topic"


def test_the_command_finds_them_in_a_process_of_its_own(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("name: p\nsources:\n  n: {numbers: x}\nsinks:\n  out: {from: n, lines: y}\n")
    done = subprocess.run(
        [sys.executable, "-m", "moldau", "pipeline", "check", "--static", str(file)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(package)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "p is sound" in done.stdout
