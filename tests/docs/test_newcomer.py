"""A newcomer's hour: the quickstart and the tutorial, line by line, from the built wheel in an empty environment."""

import os
import socket
from pathlib import Path

import pytest

from moldau.testing.ports import free_ports
from tests.docs.consoles import Console, matches, steps

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.foreign  # a shell, and Spark

PORTS = ("9091", "9092", "9093", "9094")
"""Ports of the pages, neighbours: the tutorial counts from the first."""


@pytest.mark.parametrize(("page", "least"), [("quickstart", 5), ("tutorial", 25)])
def test_every_line_of_a_page_does_what_the_page_says(page: str, least: int, installed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = {
        "PATH": f"{installed.parent}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": cache,  # Spark's connector, which the tests of pipelines have fetched
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    ports = neighbours()
    environment["MOLDAU_BOOTSTRAP_SERVER"] = f"localhost:{ports['9092']}"  # the page's own is everybody's default
    with Console(tmp_path, environment, ports) as console:
        assert console.run_page(DOCS / f"{page}.md") >= least


def neighbours() -> dict[str, str]:
    """Free ports for those of the pages, one after the other."""
    while True:
        [first] = free_ports(1)
        if first < 65_000 and all(is_free(first + step) for step in range(1, 4)):
            return {written: str(first + step) for step, written in enumerate(PORTS)}


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_output_that_differs_is_found() -> None:
    [step] = steps("$ echo a\na ... c\n...\nlast\n")
    assert matches(step.output, "a b c\n1\n2\nlast\n")
    assert not matches(step.output, "a b\n1\nlast")
    assert not matches([], "something")
