"""Verdicts on the figures of two clusters."""

import pytest

from bench.cluster import Figures
from bench.report import KAFKA, MOLDAU


@pytest.mark.parametrize(
    ("figure", "met", "missed"),
    [
        ("records/s", (100.0, 100.0), (99.0, 100.0)),
        ("CPU s", (1.0, 2.0), (1.1, 2.0)),
        ("p50 ms", (1.0, 1.0), (1.1, 1.0)),
        ("p99 ms", (1.0, 1.0), (1.1, 1.0)),
        ("s to the first acknowledgement", (1.0, 10.0), (1.1, 10.0)),
    ],
)
def test_every_figure_has_its_target(figure: str, met: tuple[float, float], missed: tuple[float, float]) -> None:
    for both, is_met in ((met, True), (missed, False)):
        figures = Figures()
        for name, value in zip((MOLDAU, KAFKA), both, strict=True):
            figures.add("work", figure, name, value)
        assert [row.is_met for row in figures.rows()] == [is_met]


def test_the_median_counts_and_figures_without_a_target_are_only_shown() -> None:
    figures = Figures()
    for value in (1.0, 9.0, 2.0):
        figures.add("three brokers", "start, s", MOLDAU, value)
        figures.add("three brokers", "start, s", KAFKA, value)
    [row] = figures.rows()
    assert (row.ours, row.theirs, row.is_met) == (2.0, 2.0, True)
