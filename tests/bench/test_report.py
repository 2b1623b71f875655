"""Verdicts and the place in the document."""

from pathlib import Path

import pytest

from bench.report import COMMITTED, DURABLE, KAFKA, MOLDAU, PLAIN, Measured, Results, Sample, render, write

GOOD = {
    "per_s": (100.0, 100.0),
    "cpu_s": (0.5, 1.0),
    "average_ms": (0.9, 1.0),
    "p99_ms": (1.8, 2.0),
    "start_s": (0.1, 1.0),
    "resident_mb": (100.0, 1000.0),
}


def results(**changed: tuple[float, float]) -> Results:
    """Figures of both brokers, exactly on target unless changed."""
    figures = {**GOOD, **changed}
    made = Results()
    for index, server in enumerate((MOLDAU, KAFKA)):
        figure = {name: both[index] for name, both in figures.items()}
        made.start_s[server] = [figure["start_s"]]
        made.resident_mb[server] = figure["resident_mb"]
        made.add("produce", server, Sample(Measured(figure["per_s"]), figure["cpu_s"], 1.0), 0.5)
        timed = Measured(1.0, figure["average_ms"], figure["p99_ms"])
        made.add("end to end", server, Sample(timed, figure["cpu_s"], 1.0), 0.5)
    return made


def test_figures_on_target_are_met() -> None:
    text, missed = render(results())
    assert missed == []
    assert "missed" not in text


@pytest.mark.parametrize(
    ("figure", "both", "row"),
    [
        ("per_s", (99.0, 100.0), "produce: records/s: 0.99"),
        ("average_ms", (1.0, 1.0), "end to end: average ms: 1.00"),
        ("p99_ms", (2.0, 2.0), "end to end: p99 ms: 1.00"),
        ("start_s", (0.2, 1.0), "start to first answer, s: 0.20"),
        ("resident_mb", (101.0, 1000.0), "resident after the run, MB: 0.10"),
    ],
)
def test_one_bad_figure_misses_one_target(figure: str, both: tuple[float, float], row: str) -> None:
    text, missed = render(results(**{figure: both}))
    assert [line.startswith(row) for line in missed] == [True]
    assert text.count("**missed**") == 1


def test_too_much_cpu_is_missed_for_each_work() -> None:
    _, missed = render(results(cpu_s=(0.6, 1.0)))
    assert [line.split(":")[0] for line in missed] == ["produce", "end to end"]


def test_group_commit_stands_beside_and_has_no_target() -> None:
    made = results()
    made.add("produce", DURABLE, Sample(Measured(1.0), 9.0, 1.0), 0.5)
    text, missed = render(made)
    assert "| produce: records/s | 100 | 1.00 |" in text
    assert missed == []


def test_the_median_of_the_rounds_counts() -> None:
    made = results()
    for per_s in (10.0, 500.0):
        made.add("produce", MOLDAU, Sample(Measured(per_s), 0.5, 1.0), 0.5)
    assert "| produce: records/s | 100 | 100 | 1.00 |" in render(made)[0]


def test_only_the_part_between_the_markers_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    write(document, "first table\n", "make bench")
    document.write_text(document.read_text().replace("# Benchmarks", "# Ours") + "\nwords after\n")
    write(document, "second table\n", "make bench")
    text = document.read_text()
    assert text.startswith("# Ours\n")
    assert text.endswith("\nwords after\n")
    assert "second table" in text
    assert "first table" not in text


@pytest.mark.parametrize(("committed_s", "is_missed"), [(1.1, False), (1.2, True)])
def test_read_committed_may_take_a_tenth_more_than_a_plain_fetch(committed_s: float, is_missed: bool) -> None:
    made = results()
    for work, cpu_s in ((PLAIN, 1.0), (COMMITTED, committed_s)):
        made.add(work, MOLDAU, Sample(Measured(1.0), cpu_s, 1.0), 0.5)
        made.add(work, KAFKA, Sample(Measured(1.0), 9.0, 1.0), 0.5)
    text, missed = render(made)
    assert [line.startswith("Moldau: broker CPU s: 1.20") for line in missed] == [True] * is_missed
    assert "| Kafka: broker CPU s | 9.00 | 9.00 | 1.00 |  |  |" in text
