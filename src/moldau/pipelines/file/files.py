"""Files to specs: YAML or Python, by the file's name."""

from collections.abc import Mapping
from pathlib import Path

from moldau.pipelines.file import python_file, yaml_file
from moldau.pipelines.file.check import check, check_names, in_order
from moldau.pipelines.file.draft import Draft, build
from moldau.pipelines.file.overrides import override
from moldau.pipelines.file.problems import PipelineError, Place, Problem
from moldau.pipelines.file.spec import PipelineSpec

READERS = {".yaml": yaml_file.read, ".yml": yaml_file.read, ".py": python_file.read}


def load(
    path: str | Path, bootstrap: str | None = None, settings: Mapping[str, str] | None = None, ask: bool = False
) -> PipelineSpec:
    """The pipeline of the file, each of its entries sound; `check` says whether they go together.

    Raises PipelineError with all problems of the file, in the order of its lines; with `ask`, also with the problems
    that clusters and databases have with the sound entries.
    """
    draft = override(read(path), settings or {})
    spec, problems = build(draft, bootstrap)
    if problems:
        broken = draft.names() - {*spec.sources, *spec.views}
        more = check(spec, broken) if ask else check_names(spec, broken)
        raise PipelineError(in_order([*problems, *more]))
    return spec


def read(path: str | Path) -> Draft:
    """The pipeline as it was written, not checked yet. Raises PipelineError if it cannot be read."""
    path = Path(path)
    reader = READERS.get(path.suffix)
    if reader is None:
        raise PipelineError([Problem(Place(str(path), 1), "a pipeline is a .yaml or a .py file")])
    if not path.is_file():
        raise PipelineError([Problem(Place(str(path), 1), "there is no such file")])
    return reader(path)
