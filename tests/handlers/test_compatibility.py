from pathlib import Path

from moldau.requests.compatibility_page import render

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_the_page_says_what_the_handlers_say() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"
