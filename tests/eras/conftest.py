"""Three brokers over a real ZooKeeper, for programs of the ZooKeeper era. `make eras` tries every version."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from moldau.testing.brokers import BrokerInThread
from tests.eras.era import ALL, FIRST, LAST, Era
from tests.zookeeper_ensemble import Ensemble, running_ensemble

ALL_ERAS = os.environ.get("MOLDAU_ERAS") == "all"
only_all_eras = pytest.mark.all_eras

_numbers = count(1)


class Brokers:
    """Brokers 0 to 2, and their addresses."""

    def __init__(self, ensemble: Ensemble, data: Path) -> None:
        self.zookeeper = f"{ensemble.connect}/eras"
        self.all = [
            BrokerInThread(
                data / f"kafka-logs-{number}",
                {
                    "zookeeper.connect": self.zookeeper,
                    "broker.id": str(number),
                    "offsets.topic.replication.factor": "3",
                    "auto.create.topics.enable": "false",
                },
            )
            for number in range(3)
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.all)

    def era(self, version: str) -> Era:
        return Era(version, self.zookeeper, self.bootstrap)


@pytest.fixture(scope="session")
def ensemble() -> Iterator[Ensemble]:
    with running_ensemble() as made:
        yield made


@pytest.fixture(scope="session")
def brokers(ensemble: Ensemble) -> Iterator[Brokers]:
    with ExitStack() as stack:
        made = Brokers(ensemble, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-eras-"))))
        for broker in made.all:
            broker.start()
            stack.callback(broker.stop)
        yield made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long is for `make eras`."""
    left_out = [] if ALL_ERAS else [item for item in items if item.get_closest_marker("all_eras")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The first and the last version in `make test`, all of them in `make eras`."""
    if "era" in metafunc.fixturenames:
        versions = ALL if ALL_ERAS else (FIRST, LAST)
        metafunc.parametrize("version", versions)


@pytest.fixture
def era(brokers: Brokers, version: str) -> Era:
    return brokers.era(version)


@pytest.fixture
def topic() -> str:
    """A topic name that no other test has."""
    return f"visits-{next(_numbers)}"
