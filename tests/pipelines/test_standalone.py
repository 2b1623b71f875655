"""The demo's pipeline, the file as it is, on a standalone Spark cluster of two workers, and through Spark Connect: one
flag says where."""

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import moldau.testing
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.standalone_spark import Standalone, connect_server, standalone

TIMEOUT_S = 180.0
LOOK_S = 0.05
HELPER = """
from letters import upper


def capital(text):
    return upper.all_of(text)
"""
PYTHON_FILE = """
import capitals
from pyspark.sql import functions as F

from moldau.pipelines import Pipeline

pipeline = Pipeline("capitals")
pipeline.source("visits", topic="page-views", schema="organisation STRING")


def shout(text):
    return capitals.capital(text)


@pipeline.view
def capitals_of(visits):
    return visits.select(F.udf(shout, "string")("organisation").alias("name"))


pipeline.sink("table", from_="capitals_of", sqlite="capitals.db", table="capitals")
"""
FILE = Path(__file__).parents[2] / "examples" / "visits.yaml"
PARTITIONS = 3
VISITS = 300
DAYS = 3
ORGANISATIONS = ("Charles University", "Czech Radio", "National Library", "Observatory")

Counts = dict[tuple[str, str], int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with moldau.testing.broker(properties={"num.partitions": str(PARTITIONS)}) as broker:
        yield Cluster("moldau", broker.bootstrap)


@pytest.fixture(scope="module")
def sent(cluster: Cluster) -> Counts:
    """Visits, some of them told of days late; how many there are by organisation and day."""
    counts: Counter[tuple[str, str]] = Counter()
    records = []
    begun = datetime(2026, 3, 20, 12, tzinfo=UTC)
    for number in range(VISITS):
        organisation = ORGANISATIONS[number % len(ORGANISATIONS)]
        at = begun + timedelta(seconds=number) - timedelta(days=number % DAYS)
        visit = {"organisation": organisation, "page": "/", "at": at.isoformat()}
        records.append(Record(json.dumps(visit).encode(), organisation.encode(), partition=number % PARTITIONS))
        counts[organisation, at.strftime("%Y-%m-%d")] += 1
    cluster.send("page-views", records)
    return dict(counts)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster of two workers, of which one of the tests kills one."""
    with standalone(tmp_path_factory.mktemp("spark"), cores=1, workers=2) as running:
        yield running


def test_a_file_of_python_and_what_it_imports_are_sent_to_the_workers(
    cluster: Cluster, sent: Counts, spark: Standalone, tmp_path: Path
) -> None:
    (tmp_path / "capitals.py").write_text(HELPER)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "__init__.py").touch()
    (tmp_path / "letters" / "upper.py").write_text("def all_of(text):\n    return text.upper()\n")
    (tmp_path / "capitals_of_visits.py").write_text(PYTHON_FILE)
    end(start(tmp_path, tmp_path / "capitals_of_visits.py", cluster, "--master", spark.url))
    with closing(sqlite3.connect(tmp_path / "capitals.db")) as connection:
        found = connection.execute("SELECT name, count(*) FROM capitals GROUP BY name").fetchall()
    organisations: Counter[str] = Counter()
    for (organisation, _), visits in sent.items():
        organisations[organisation.upper()] += visits
    assert dict(found) == dict(organisations)


def test_a_cluster_of_which_a_worker_is_killed_runs_the_demos_pipeline(
    cluster: Cluster, sent: Counts, spark: Standalone, tmp_path: Path
) -> None:
    few = ("--set", "sources.visits.max_per_batch=100", "--master", spark.url)
    running = start(tmp_path, FILE, cluster, *few)
    wait_for_rows(tmp_path, running)
    spark.workers[0].kill9()
    end(running)
    assert in_table(tmp_path) == sent
    assert in_topic(cluster) == sent


def test_the_demos_pipeline_runs_through_spark_connect(cluster: Cluster, sent: Counts, tmp_path: Path) -> None:
    with connect_server(tmp_path / "server") as address:
        end(start(tmp_path, FILE, cluster, "--set", "name=visits-elsewhere", "--remote", address))
    assert in_table(tmp_path) == sent
    assert in_topic(cluster) == sent


def start(directory: Path, file: Path, cluster: Cluster, *where: str) -> "subprocess.Popen[str]":
    here = directory / file.name
    if here != file:
        shutil.copy(file, here)
    command = (sys.executable, "-m", "moldau", "pipeline", "run", here, "--bootstrap-server", cluster.bootstrap)
    return subprocess.Popen(
        [*command, "--once", *where], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def end(running: "subprocess.Popen[str]") -> None:
    said, _ = running.communicate(timeout=TIMEOUT_S)
    assert running.returncode == 0, said


def wait_for_rows(directory: Path, running: "subprocess.Popen[str]") -> None:
    """Wait until the first batch is in the table."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (directory / "visits.db").exists() or not in_table(directory):
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


def in_table(directory: Path) -> Counts:
    with closing(sqlite3.connect(directory / "visits.db")) as connection, suppress(sqlite3.OperationalError):
        rows = connection.execute("SELECT organisation, day, visits FROM visits_by_day").fetchall()
        return {(organisation, day): visits for organisation, day, visits in rows}
    return {}  # no table yet


def in_topic(cluster: Cluster) -> Counts:
    """The last count under each key."""
    counts: Counts = {}
    for record in cluster.read("visits-by-day"):
        count = json.loads(record.value or b"")
        counts[count["organisation"], count["day"]] = count["visits"]
    return counts
