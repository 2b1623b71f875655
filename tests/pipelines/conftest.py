"""One Spark for all tests of pipelines, and a cluster: Moldau, then Apache Kafka, for each test that asks for one."""

import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau.pipelines
import moldau.testing
from bench.kafka import start_kafka
from moldau.pipelines.spark.session import session
from tests.pipelines import postgres_server
from tests.pipelines.clusters import Cluster
from tests.pipelines.postgres_server import Server
from tests.pipelines.registries import RegistryServer
from tests.pipelines.registry_server import registry_server
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()

WITH_TRANSACTIONS = ["moldau", "kafka-4.3.1"]
"""The clusters of tests of transactions."""


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> Iterator[None]:
    """Quick options for the JVMs of these tests, Spark's and Apache Kafka's: they live for seconds, and compiling well
    does not pay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The one session of the test run, as `moldau pipeline run` makes it, on two cores."""
    # pytest parses each module of ours as it is imported, and the parser of Python 3.11 mixes up two threads that do so
    # (python/cpython#106905: `AST constructor recursion depth mismatch`): so all are imported before there are several.
    for module in pkgutil.walk_packages(moldau.pipelines.__path__, "moldau.pipelines."):
        with suppress(ModuleNotFoundError):  # the capture of PostgreSQL needs more than the oldest PySpark has
            importlib.import_module(module.name)
    spec = pipeline(storage=tmp_path_factory.mktemp("spark"), spark={"spark.sql.shuffle.partitions": "2"})
    started = session(spec, master="local[2]")
    yield started
    started.stop()


@pytest.fixture(scope="session", params=["moldau", "kafka-4.3.1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A running broker, at `cluster.bootstrap`. Its topics outlive a test: take `cluster.new_topic()`."""
    if request.param == "moldau":
        with moldau.testing.broker() as broker:
            yield Cluster(request.param, broker.bootstrap)
    else:
        with start_kafka() as server:
            yield Cluster(request.param, server.bootstrap)


@pytest.fixture(scope="session")
def moldau_cluster_only() -> Iterator[Cluster]:
    """A running broker for tests that need topics but show nothing about a broker."""
    with moldau.testing.broker() as broker:
        yield Cluster("moldau", broker.bootstrap)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A pipeline's storage."""
    return tmp_path / f"pipeline-{next(_numbers)}"


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL. Its tables outlive a test: each takes names of its own."""
    with postgres_server.running() as running:
        yield running


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    """A Schema Registry. Its subjects outlive a test: take `registry.new_topic()`."""
    with registry_server() as url:
        yield RegistryServer(url)
