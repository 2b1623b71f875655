"""The site is built strictly, has every page, and asks nobody else for anything."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(r'<(?:script|img|iframe)[^>]+src="?(https?://[^">]+)|<link[^>]+href="?(https?://[^">]+)')
pytestmark = pytest.mark.foreign  # it takes some seconds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    build(ROOT / "mkdocs.yml", directory)
    return directory


def build(configuration: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",  # not -q: warnings would not be counted then
        "-f",
        str(configuration),
        "-d",
        str(directory),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("spoilt", ["a link", "an anchor", "a page without a menu"])
def test_what_leads_nowhere_ends_the_build(tmp_path: Path, spoilt: str) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    quickstart = tmp_path / "docs" / "quickstart.md"
    if spoilt == "a link":
        quickstart.write_text(f"{quickstart.read_text()}\n[more](nowhere.md)\n")
    elif spoilt == "an anchor":
        quickstart.write_text(f"{quickstart.read_text()}\n[more](tools.md#nowhere)\n")
    else:
        (tmp_path / "docs" / "forgotten.md").write_text("# Forgotten\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert "Aborted with 1 warnings in strict mode" in failed.value.output + failed.value.stderr


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert [str(page) for page in sorted(pages) if not (site / page).exists()] == []
    assert "quickstart.html" in (site / "index.html").read_text()


def test_the_site_asks_nobody_else(site: Path) -> None:
    found = {str(page): FOREIGN.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page: links for page, links in found.items() if links} == {}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(\"?https?://[^)]*\)", styles) == []
