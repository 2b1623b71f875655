from pathlib import Path

from moldau.core.broker_keys import BROKER_KEYS
from moldau.core.configuration_page import render
from moldau.core.unserved import HARMLESS, REFUSED

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_says_what_the_tables_say() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


def test_every_property_has_one_line() -> None:
    first_cells = [line.split("|")[1].strip(" `") for line in render().splitlines() if line.startswith("| `")]
    assert sorted(first_cells) == sorted(BROKER_KEYS.keys() | REFUSED.keys())


def test_every_row_has_as_many_cells_as_its_heading() -> None:
    for section in render().split("\n## ")[1:]:
        assert len({line.count("|") for line in section.splitlines() if line.startswith("|")}) == 1, section


def test_what_is_refused_or_has_no_effect_says_so() -> None:
    page = render()
    assert page.count("**Refused**: ") == len(REFUSED.keys() & BROKER_KEYS.keys())
    assert page.count("**No effect**: ") == len(HARMLESS)
