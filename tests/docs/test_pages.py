"""Every command line, link and generated page of the documentation is true."""

import ast
import re
from pathlib import Path

import pytest

from moldau.__main__ import COMMANDS
from moldau.cli.command_page import page
from tests.docs.command_lines import calls, fenced, inline, problem, unknown_words

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_line_is_understood(path: Path) -> None:
    text = path.read_text()
    wrong = [(" ".join(call), problem(call)) for line in fenced(text) for call in calls(line) if problem(call)]
    assert wrong == [], "a reader would type this"
    cut = [(words, unknown_words(call)) for words in inline(text) for call in calls(words) if unknown_words(call)]
    assert cut == [], "no such command or option"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_anchor_of_a_link_is_a_heading(path: Path) -> None:
    text = path.read_text()
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        there = (path.parent / target) if target else path
        headings = re.findall(r"(?m)^#+ (.+)$", there.read_text())
        slugs = {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}
        assert anchor in slugs, f"{target}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_of_python_is_python(path: Path) -> None:
    for block in re.findall(r"(?ms)^```python[^\n]*\n(.*?)^```", path.read_text()):
        compile(block, path.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def test_the_page_of_commands_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text() == page().rstrip() + "\n", "run `make docs`"
    assert all(f"## moldau {name}\n" in page() for name in COMMANDS)


@pytest.mark.parametrize(
    "line",
    [
        "moldau topics lst",
        "moldau topics list --jsn",
        "moldau serve --prot 1",
        "moldau tpics list",
        "moldau produce --acs 1",
    ],
)
def test_a_mistyped_line_is_found(line: str) -> None:
    [call] = calls(line)
    assert problem(call) is not None


def test_a_line_of_a_shell_is_taken_apart() -> None:
    line = "$ A=1 moldau serve x.properties 2> log & echo a | moldau produce --topic 'a b' > out"
    assert list(calls(line)) == [["serve", "x.properties"], ["produce", "--topic", "a b"]]


def test_the_page_of_answers_has_enough_of_them() -> None:
    assert len(re.findall(r"(?m)^\*\*[^*]+\?\*\*", (ROOT / "docs" / "answers.md").read_text())) >= 12
