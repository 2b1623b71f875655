"""Every pipeline of `examples/pipelines` gives the rows that it promises; all of them run in one Spark."""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.pipelines import pipeline
from tests.pipelines.example_cases import CASES, Case
from tests.pipelines.example_lines import lines

EXAMPLES = Path(__file__).parents[2] / "examples"
AT_ONCE = 3
"""Pipelines that run at the same time: each waits for Spark most of the time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a pipeline has left."""

    rows: dict[str, list[dict[str, Any]]]
    bad: tuple[bytes, ...]
    records: dict[str, list[Any]]


def run(case: Case) -> Ended:
    # Where no record is bad there is no need to look for them, and one that is bad all the same ends the run.
    settings = {} if case.bad else {"dead_letters": "none"}
    with pipeline(EXAMPLES / "pipelines" / case.file, case.schemas, settings) as tested:
        tested.spark.conf.set("spark.sql.shuffle.partitions", "1")
        for given in case.given:
            for source, rows in given.items():
                tested.give(source, rows, case.topics.get(source))
            tested.run()
        topics = [name for name, sink in tested.spec.sinks.items() if sink.kind == "topic"]
        return Ended(
            {name: tested.rows(name) for name in case.expected},
            tuple(letter.value or b"" for letter in tested.dead_letters()),
            {name: tested.records(name) for name in topics},
        )


@pytest.fixture(scope="module")
def ended(spark: object) -> Iterator[dict[str, "Future[Ended]"]]:  # noqa: ARG001 - the Spark that all share
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {case.file: pool.submit(run, case) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case.file for case in CASES])
def test_an_example_gives_the_rows_that_it_promises(case: Case, ended: dict[str, "Future[Ended]"]) -> None:
    found = ended[case.file].result()
    for sink, expected in case.expected.items():
        assert sorted(found.rows[sink], key=str) == sorted(expected, key=str)
    assert sorted(found.bad) == sorted(case.bad)


def test_bytes_are_mirrored_as_they_are(ended: dict[str, "Future[Ended]"]) -> None:
    [record] = ended["mirror.yaml"].result().records["there"]
    assert record.value == b"\x00\xff"


def test_every_example_is_tried() -> None:
    there = {path.name for path in (EXAMPLES / "pipelines").iterdir() if path.suffix in (".yaml", ".py")}
    assert there - {"__init__.py"} == {case.file for case in CASES}


def test_the_page_of_examples_counts_their_lines() -> None:
    page = EXAMPLES.parent / "docs" / "pipeline-examples.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| [")]
    for row in rows:
        _, pipeline_file, _, count, plain, _ = row.split("|")
        [file] = re.findall(r"\(\.\./(.*)\)", pipeline_file)
        assert lines(EXAMPLES.parent / file) == int(count), file
        for written, other in re.findall(r"\[(\d+)\]\(\.\./(.*)\)", plain):
            assert lines(EXAMPLES.parent / other) == int(written), other
    assert len(rows) == len(CASES) + 4
