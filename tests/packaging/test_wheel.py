"""The built wheel: complete, and of use in an environment that has nothing else of ours."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import moldau
from tests.docs.environments import built_wheel, environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.foreign  # an installer, which need not be Python

TRY = """
import moldau, moldau.testing, sys
assert moldau.__file__.startswith(sys.prefix), moldau.__file__
with moldau.testing.broker() as broker:
    with moldau.Producer(broker.bootstrap) as producer:
        print(producer.send_and_wait("visits", "hello").offset)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    source = ROOT / "src"
    wanted = [path for path in (source / "moldau").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [str(path) for path in wanted if path.relative_to(source).as_posix() not in names] == []
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_an_installed_wheel_serves_and_has_its_command(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", wheel)
    # a path of the checkout in the environment would be imported from, not the wheel
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tried = subprocess.run([python, "-c", TRY], cwd=tmp_path, capture_output=True, text=True, check=True, env=own)
    assert tried.stdout == "0\n"
    command = python.with_name("moldau")
    told = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True, env=own)
    assert told.stdout == f"moldau {moldau.__version__}\n"
