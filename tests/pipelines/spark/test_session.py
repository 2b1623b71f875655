import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.pipelines.spark import session
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "connector_jars", lambda: [Path("/jars/spark-sql-kafka.jar")])


def test_defaults_suit_a_small_machine_and_the_pipelines_settings_win(tmp_path: Path) -> None:
    made = session.settings(pipeline(tmp_path, spark={"spark.sql.shuffle.partitions": "9", "spark.jars": "mine.jar"}))
    assert made["spark.master"] == "local[*]"
    assert made["spark.ui.enabled"] == "false"
    assert made["spark.sql.session.timeZone"] == "UTC"
    assert "RocksDB" in made["spark.sql.streaming.stateStore.providerClass"]
    assert made["spark.sql.shuffle.partitions"] == "9"
    assert made["spark.jars"] == "mine.jar,/jars/spark-sql-kafka.jar"
    assert "spark.submit.pyFiles" not in made


def test_a_master_is_the_commands_then_the_files_then_local(tmp_path: Path) -> None:
    spec = pipeline(tmp_path, spark={"spark.master": "local[3]"})
    assert session.settings(spec)["spark.master"] == "local[3]"
    assert session.settings(spec, master="local[1]")["spark.master"] == "local[1]"


def test_real_time_mode_gets_slots_for_tasks_that_never_end(tmp_path: Path) -> None:
    assert session.settings(pipeline(tmp_path), realtime=True)["spark.master"] == "local[16]"


def test_executors_of_a_cluster_get_the_package(tmp_path: Path) -> None:
    made = session.settings(pipeline(tmp_path), master="spark://somewhere:7077")
    assert "spark.driver.host" not in made
    packed = zipfile.ZipFile(made["spark.submit.pyFiles"]).namelist()
    assert {"moldau/__init__.py", "moldau/pipelines/spark/session.py"} <= set(packed)


def test_the_package_for_executors_is_gone_with_the_process() -> None:
    program = "from moldau.pipelines.spark.session import packed_package as p; print(p())"
    made = subprocess.check_output([sys.executable, "-c", program], text=True).strip()
    assert made.endswith("moldau.zip")
    assert not Path(made).parent.exists()


def test_a_connector_that_the_pipeline_brings_is_not_doubled(tmp_path: Path) -> None:
    brought = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}
    assert "spark.jars" not in session.settings(pipeline(tmp_path, spark=brought))


def test_the_running_session_is_taken_and_its_words_are_in_the_log(spark: "SparkSession", tmp_path: Path) -> None:
    assert session.session(pipeline(tmp_path)).sparkContext is spark.sparkContext
    warehouse = Path((spark.conf.get("spark.sql.warehouse.dir") or "").removeprefix("file:"))
    assert "WARN" in (warehouse.parent / "spark.log").read_text()


def test_the_log_of_the_run_before_is_kept_once(tmp_path: Path) -> None:
    for words in ("first", "second"):
        session._fresh_log(tmp_path).write_text(words)
    assert not session._fresh_log(tmp_path).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["spark.log.1"]
    assert (tmp_path / "spark.log.1").read_text() == "second"


def test_a_spark_connect_server_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.CONNECT_WAIT_S < 60
    monkeypatch.setattr(session, "CONNECT_WAIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(session.SessionFailed) as failure:
            session.session(pipeline(tmp_path), remote=f"sc://127.0.0.1:{port}/;token=secret")
        words = f"no Spark Connect server answers at sc://127.0.0.1:{port} within 0.5 s"
        assert str(failure.value) == f"{words}: is it started, and is the port right?"
    with pytest.raises(session.SessionFailed, match="no Spark Connect server answers"):
        session.session(pipeline(tmp_path), remote=f"sc://127.0.0.1:{port}")
    with pytest.raises(session.SessionFailed, match=r"^http://127\.0\.0\.1 is no address of Spark Connect: "):
        session.session(pipeline(tmp_path), remote="http://127.0.0.1")
