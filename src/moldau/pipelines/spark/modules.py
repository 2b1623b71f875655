"""Modules that a pipeline's Python file imports from beside itself: workers of a cluster have to get them.

Spark sends a function of the file itself as a value, and what that calls elsewhere by name. So the names that the file
imports, at its top or in a function, are looked up beside it, and what these import, too.
"""

import ast
import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.spec import PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALLED = ("site-packages", "dist-packages")
"""Directories of packages that workers have of their own."""
OURS = "moldau"


def send(spark: "SparkSession", spec: PipelineSpec, connected: bool = False) -> None:
    """Send the modules to the workers; to those of this machine's own Spark nothing need be sent."""
    if not connected and str(spark.sparkContext.master).startswith("local"):
        return
    found = imported(Path(spec.place.file))
    if found and connected:
        spark.addArtifacts(str(packed(found)), pyfile=True)
    elif found:
        spark.sparkContext.addPyFile(str(packed(found)))


def imported(file: Path) -> dict[str, Path]:
    """The files of modules and packages beside a Python file that it needs, by their places on an import path."""
    directory = file.resolve().parent
    if file.suffix != ".py" or directory.name in INSTALLED:
        return {}
    found: dict[str, Path] = {}
    waiting = [file]
    while waiting:
        for name in _names(waiting.pop()):
            new = {place: path for place, path in _files(directory, name) if place not in found}
            found |= new
            waiting.extend(new.values())
    return found


def _names(file: Path) -> set[str]:
    """The first parts of the names that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # whoever imports it will say so
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - {OURS}


def _files(directory: Path, name: str) -> Iterator[tuple[str, Path]]:
    module, package = directory / f"{name}.py", directory / name
    if (package / "__init__.py").is_file():
        for path in sorted(package.rglob("*.py")):
            yield str(path.relative_to(directory)), path
    elif module.is_file():
        yield module.name, module


def packed(files: Mapping[str, Path]) -> Path:
    """The files as a zip file of a name of its own, which is there as long as this process: workers that come later ask
    for it."""
    made = Path(tempfile.mkdtemp(prefix="moldau-modules-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    target = made / f"{made.name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, path in files.items():
            archive.write(path, place)
    return target
