"""The built wheel, in an environment of its own, for all tests of a worker."""

from pathlib import Path

import pytest

from tests.docs.environments import built_wheel, environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of an environment that has the wheel."""
    return environment(tmp_path_factory.mktemp("installed"), wheel)
