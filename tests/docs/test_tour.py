"""The tours of the documentation, run again."""

from pathlib import Path

import pytest

from tests.docs.tour import TOURS, comparable, page


@pytest.mark.foreign
@pytest.mark.parametrize("tour", sorted(TOURS.glob("*.txt")), ids=lambda tour: tour.stem)
def test_a_tour_prints_what_its_page_says(tour: Path) -> None:
    written = tour.with_suffix(".md").read_text()
    assert comparable(page(tour)) == comparable(written), "make it again: python -m tests.docs.tour"


def test_measured_numbers_are_not_compared() -> None:
    assert comparable("Avg latency: 1.25 ms\n3 records") == comparable("Avg latency: 17.0 ms\n3 records")
    assert comparable("3 records") != comparable("4 records")
