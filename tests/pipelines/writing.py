"""Pipeline files for tests, written where pytest says, and their problems without the directory's name."""

from pathlib import Path
from textwrap import dedent

from moldau.pipelines.file.check import check_names, in_order
from moldau.pipelines.file.draft import build
from moldau.pipelines.file.files import read
from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import PipelineSpec


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(dedent(text))
    return path


def spec_of(path: Path) -> PipelineSpec:
    """The spec of a file without a fault, asking no cluster."""
    spec, problems = build(read(path))
    assert problems == []
    return spec


def problems_of(path: Path) -> list[str]:
    """All problems of the file that can be found without asking anybody."""
    try:
        draft = read(path)
    except PipelineError as error:
        return _short(path, str(error).splitlines())
    spec, problems = build(draft)
    broken = draft.names() - {*spec.sources, *spec.views}
    found = in_order([*problems, *check_names(spec, broken)])
    return _short(path, [str(problem) for problem in found])


def _short(path: Path, lines: list[str]) -> list[str]:
    return [line.replace(f"{path.parent}/", "") for line in lines]
