"""The resolution runs Ivy for real, against a repository that the test serves."""

import logging
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from moldau.pipelines.spark import jar_hashes, jars
from moldau.pipelines.spark.java import java_home
from moldau.pipelines.spark.trust_store import write_trust_store

SPARK, CLIENTS, POOL = "9.9.9", "3.99.2", "2.99.1"  # versions that nobody published
CONNECTOR, TOKENS = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def publish(root: Path, group: str, name: str, versions: list[str], needs: str = "") -> None:
    """A module as a Maven repository has it; each jar says which it is."""
    base = root / group.replace(".", "/") / name
    for version in versions:
        (base / version).mkdir(parents=True)
        (base / version / f"{name}-{version}.jar").write_text(f"{name} {version}")
        (base / version / f"{name}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version><dependencies>{needs}</dependencies></project>"
        )
    listed = "".join(f"<version>{version}</version>" for version in versions)
    (base / "maven-metadata.xml").write_text(
        f"<metadata><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<versioning><versions>{listed}</versions></versioning></metadata>"
    )


def dependency(group: str, name: str, version: str) -> str:
    named = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{named}</dependency>"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """All but the token provider of this version; of it there is an older one and one that is too new."""
    root = tmp_path / "repository"
    needs = (
        dependency("org.apache.spark", TOKENS, SPARK)
        + dependency("org.apache.kafka", "kafka-clients", CLIENTS)
        + dependency("org.apache.commons", "commons-pool2", POOL)
        + dependency("org.example", "not-wanted", "1")
    )
    publish(root, "org.apache.spark", CONNECTOR, ["9.9.8", SPARK], needs)
    publish(root, "org.apache.spark", TOKENS, ["9.8.0", "9.9.0-preview1", "9.9.10"])
    publish(root, "org.apache.kafka", "kafka-clients", [CLIENTS, "4.0.0"])
    publish(root, "org.apache.commons", "commons-pool2", [POOL])
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a PySpark of a version that only the test's repository knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pyspark.__version__", SPARK)
    return tmp_path / "cache" / "moldau"


def test_exact_versions_are_taken_and_the_newest_before_where_one_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cache: Path, repository: str
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", repository)
    with caplog.at_level(logging.WARNING, "moldau"):
        found = jars.connector_jars()
    assert [jar.name for jar in found] == [
        f"commons-pool2-{POOL}.jar",
        f"kafka-clients-{CLIENTS}.jar",
        f"{CONNECTOR}-{SPARK}.jar",
        f"{TOKENS}-9.9.0-preview1.jar",
    ]
    assert found[0].read_text() == f"commons-pool2 {POOL}"
    assert caplog.messages == [f"{TOKENS} {SPARK} cannot be had here: {TOKENS} 9.9.0-preview1 is used instead"]
    assert [path.name for path in cache.iterdir()] == [f"spark-{SPARK}"]

    monkeypatch.setattr(subprocess, "run", _must_not_run)
    assert jars.connector_jars() == found


def _must_not_run(*arguments: object, **options: object) -> None:
    raise AssertionError(f"started {arguments} {options}")


def test_a_mirror_of_mavens_settings_is_used_and_two_processes_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path, repository: str
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors><mirror><id>here</id>'
        f"<mirrorOf>*</mirrorOf><url>{repository}</url></mirror></mirrors></settings>"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY", raising=False)
    found: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: found.append(jars.connector_jars())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert [path.name for path in cache.iterdir()] == [f"spark-{SPARK}"]


def test_without_a_repository_one_line_says_what_to_do_and_the_cache_stays_empty(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:1/")
    with pytest.raises(jars.JarsMissing) as raised:
        jars.connector_jars()
    message = str(raised.value)
    assert message.startswith(f"cannot get {CONNECTOR} {SPARK} (ConnectException: Connection refused): ")
    assert message.endswith(f"put the four jars into {cache / f'spark-{SPARK}'}")
    assert "\n" not in message
    assert list(cache.iterdir()) == []


def test_a_directory_that_lost_a_jar_is_filled_again(
    monkeypatch: pytest.MonkeyPatch, cache: Path, repository: str
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", repository)
    kept = cache / f"spark-{SPARK}"
    kept.mkdir(parents=True)
    (kept / f"{CONNECTOR}-{SPARK}.jar").write_text("alone")
    assert len(jars.connector_jars()) == 4
    assert (kept / f"{CONNECTOR}-{SPARK}.jar").read_text() != "alone"


def test_a_jar_that_is_not_the_published_one_is_refused_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, cache: Path, repository: str
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", repository)
    monkeypatch.setitem(jar_hashes.SHA256, f"kafka-clients-{CLIENTS}.jar", "00" * 32)
    with pytest.raises(jars.JarsMissing, match="not the jar that was published"):
        jars.connector_jars()
    assert list(cache.iterdir()) == []


def test_java_reads_the_certificates_of_this_machine(tmp_path: Path) -> None:
    store = write_trust_store(tmp_path / "trusted.jks")
    assert store is not None
    keytool = java_home() / "bin" / "keytool"
    listed = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", "changeit"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.count("trustedCertEntry") > 10
