"""The demo's pipeline, the file as it is, on a standalone Spark cluster: one flag says where."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import moldau.testing
from tests.pipelines.clusters import Cluster, Record
from tests.pipelines.standalone_spark import standalone

TIMEOUT_S = 180.0
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


def test_a_standalone_master_and_worker_run_the_demos_pipeline(cluster: Cluster, sent: Counts, tmp_path: Path) -> None:
    with standalone(tmp_path, cores=2) as master:
        run(tmp_path, cluster, "--master", master)
        work = [path.name for path in (tmp_path / "work").iterdir()]
        assert [name for name in work if name.startswith("app-")], "the worker had nothing to do"
    assert in_table(tmp_path) == sent
    assert in_topic(cluster) == sent


def run(directory: Path, cluster: Cluster, *where: str) -> None:
    file = shutil.copy(FILE, directory)
    command = (sys.executable, "-m", "moldau", "pipeline", "run", file, "--bootstrap-server", cluster.bootstrap)
    ended = subprocess.run(
        [*command, "--once", *where], cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


def in_table(directory: Path) -> Counts:
    with closing(sqlite3.connect(directory / "visits.db")) as connection:
        rows = connection.execute("SELECT organisation, day, visits FROM visits_by_day").fetchall()
    return {(organisation, day): visits for organisation, day, visits in rows}


def in_topic(cluster: Cluster) -> Counts:
    """The last count under each key."""
    counts: Counts = {}
    for record in cluster.read("visits-by-day"):
        count = json.loads(record.value or b"")
        counts[count["organisation"], count["day"]] = count["visits"]
    return counts
