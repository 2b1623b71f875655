"""Tables, colours and JSON of the tools."""

import io
from argparse import Namespace

import pytest

from moldau.cli.output import BOLD, painted, show_table
from moldau.core.arguments import printable

ROWS: list[dict[str, object]] = [{"name": "a", "count": 10}, {"name": "longer", "count": None}]
HEADINGS = {"name": "NAME", "count": "COUNT"}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_aligned_columns_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Namespace(json=False), ROWS, HEADINGS, "none")
    assert capsys.readouterr().out == "NAME    COUNT\na       10\nlonger  -\n"


def test_no_rows_are_said_where_they_are_no_part_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Namespace(json=False), [], HEADINGS, "there is no group")
    assert capsys.readouterr() == ("", "there is no group\n")


def test_programs_get_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(Namespace(json=True), [], HEADINGS, "none")
    assert capsys.readouterr() == ("[]\n", "")


def test_colours_are_for_terminals_and_not_against_the_users_will(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("x", BOLD, Terminal()) == "\033[1mx\033[0m"
    assert painted("x", BOLD, io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("x", BOLD, Terminal()) == "x"


def test_a_name_cannot_move_the_cursor() -> None:
    assert printable("a\033[2Jb\tc") == "a\N{REPLACEMENT CHARACTER}[2Jb\tc"
