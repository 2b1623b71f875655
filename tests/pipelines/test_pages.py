from pathlib import Path

from moldau.pipelines import kinds
from moldau.pipelines import option_tables as page

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def test_the_page_has_the_options_that_are_declared() -> None:
    assert page.refresh(PAGE.read_text()) == PAGE.read_text(), "run `make docs`"


def test_the_page_tells_of_every_kind() -> None:
    named = {("source", name) for name in kinds.SOURCES} | {("sink", name) for name in kinds.SINKS}
    formats = {("format", name) for name in kinds.FORMATS}
    assert named | formats | {("pipeline", ""), ("source", ""), ("sink", "")} == page.tables_of(PAGE.read_text())
