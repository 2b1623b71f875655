"""The Spark session of a run: the same pipeline on this machine, a standalone cluster or through Spark Connect.

Defaults suit a small machine; the pipeline's own `spark` settings win over all of them. Spark's output goes to
`spark.log` in the pipeline's storage, not to the terminal: an error that a user must know comes back as an exception.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import moldau
from moldau.pipelines.file.spec import PipelineSpec
from moldau.pipelines.secrets import without_secrets
from moldau.pipelines.spark import modules
from moldau.pipelines.spark.jars import cache_directory, connector_jars
from moldau.pipelines.spark.java import home_for_spark, java_home

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOCAL_REALTIME = "local[16]"
"""Local master for real-time mode: every task of every stage holds a slot for as long as the query runs."""

CONNECT_WAIT_S = 20.0
"""Seconds that a Spark Connect server has to answer; PySpark alone would try for ten minutes without a word."""

_LOG4J = Path(__file__).with_name("log4j2.properties")
_LOG_TAIL_LINES = 5

_SQL_DEFAULTS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",  # a day is the same day on every machine
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_START_DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SessionFailed(Exception):
    """Error: Spark did not start; the message has the end of its output."""


def session(
    spec: PipelineSpec, master: str | None = None, remote: str | None = None, realtime: bool = False
) -> "SparkSession":
    """Start Spark here, or reach a server elsewhere. A session of this process is taken as it is."""
    if remote:
        return _connect(spec, remote)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        running = SparkContext._active_spark_context is not None
    if running:
        return SparkSession.builder.getOrCreate()
    spark = SparkSession(_start(spec, settings(spec, master, realtime)))
    modules.send(spark, spec)
    return spark


def beside(spark: "SparkSession", spec: PipelineSpec) -> "SparkSession":
    """A session for one more pipeline in the same Spark: with names of its own and the pipeline's settings of SQL."""
    made = spark.newSession()
    modules.send(made, spec)
    for name, value in spec.spark.items():
        if name.startswith("spark.sql.") and made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def settings(spec: PipelineSpec, master: str | None = None, realtime: bool = False) -> dict[str, str]:
    """The settings that Spark in this process is started with."""
    chosen = master or spec.spark.get("spark.master") or (LOCAL_REALTIME if realtime else LOCAL)
    is_local = chosen.startswith("local")
    made = {
        **_SQL_DEFAULTS,
        **_START_DEFAULTS,
        **(_LOCAL_DEFAULTS if is_local else {}),
        "spark.app.name": spec.name,
        "spark.sql.warehouse.dir": (spec.storage / "warehouse").absolute().as_uri(),
        **spec.spark,
        "spark.master": chosen,
        "spark.jars": _joined(spec.spark.get("spark.jars"), *_connector(spec.spark)),
    }
    quiet = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    made["spark.driver.extraJavaOptions"] = f"{quiet} {made.get('spark.driver.extraJavaOptions', '')}".strip()
    if not is_local:
        made["spark.submit.pyFiles"] = _joined(made.get("spark.submit.pyFiles"), str(packed_package()))
    return {name: value for name, value in made.items() if value}


def packed_package() -> Path:
    """Moldau as a zip file, for the Python workers of machines that do not have it."""
    root = Path(moldau.__file__).parent
    made = tempfile.mkdtemp(prefix="moldau-package-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)  # not before: workers that come later ask for it
    target = Path(made) / "moldau.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*.py")):
            packed.write(path, Path(root.name) / path.relative_to(root))
    return target


def _connector(given: Mapping[str, str]) -> list[str]:
    """Our jars, unless the pipeline brings the connector itself."""
    if any("spark-sql-kafka" in given.get(name, "") for name in ("spark.jars", "spark.jars.packages")):
        return []
    return [str(jar) for jar in connector_jars()]


def _joined(*parts: str | None) -> str:
    return ",".join(filter(None, parts))


def _start(spec: PipelineSpec, made: Mapping[str, str]) -> "SparkContext":
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # no type information
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    os.environ["JAVA_HOME"] = str(home_for_spark(java_home(), cache_directory()))
    os.environ.setdefault("PYSPARK_PYTHON", made.get("spark.pyspark.python", sys.executable))
    conf = SparkConf(loadDefaults=False).setAll(list(made.items()))
    log = _fresh_log(spec.storage)
    try:
        return SparkContext(conf=conf, gateway=_launch(conf, log))
    except (PySparkRuntimeError, Py4JError) as error:
        raise SessionFailed(f"Spark did not start with master {made['spark.master']}: {_why(error, log)}") from error


def _launch(conf: "SparkConf", log: Path) -> object:
    """The JVM, with its standard error in the log: PySpark alone would leave it on the terminal.

    It is in a session of its own: a signal to the whole group (systemd's, `timeout`'s) is for us, who stop the queries
    first. It ends when its standard input does, so with this process however that ends."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return SparkContext._gateway
    with log.open("ab") as errors:
        options = {"stderr": errors, "start_new_session": True}
        return launch_gateway(conf, popen_kwargs=options)  # type: ignore[no-untyped-call]


def _fresh_log(storage: Path) -> Path:
    """The path of a new log; the log of the run before is kept once."""
    storage.mkdir(parents=True, exist_ok=True)
    log = storage / "spark.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    return log


def _why(error: Exception, log: Path) -> str:
    cause = getattr(error, "java_exception", None)
    if cause is not None:
        return str(cause.getMessage() or cause.toString())
    said = log.read_text(errors="replace").splitlines()
    return " / ".join(line.strip() for line in said[-_LOG_TAIL_LINES:] if line.strip()) or str(error)


def _connect(spec: PipelineSpec, remote: str) -> "SparkSession":
    """A session of a Spark Connect server. Settings that only a start can make are the server's own business."""
    from pyspark.sql import SparkSession

    _await_server(remote)
    spark: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
    own = {name: value for name, value in spec.spark.items() if name.startswith("spark.sql.")}
    for name, value in {**_SQL_DEFAULTS, **own}.items():
        spark.conf.set(name, value)
    if not _has_connector(spark):
        jars = ",".join(map(str, connector_jars()))
        raise SessionFailed(f"the Spark at {remote} has no Kafka connector: start it with --jars {jars}")
    spark.addArtifacts(str(packed_package()), pyfile=True)
    modules.send(spark, spec, connected=True)
    return spark


def _await_server(remote: str) -> None:
    """Wait for a server that speaks gRPC at the address. Raises SessionFailed."""
    from grpc import FutureTimeoutError, channel_ready_future  # type: ignore[import-untyped]  # no type information
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(remote)
        channel = builder.toChannel()
    except PySparkException as error:
        words = " ".join(str(error).split())
        raise SessionFailed(f"{without_secrets(remote)} is no address of Spark Connect: {words}") from error
    try:
        channel_ready_future(channel).result(CONNECT_WAIT_S)
    except FutureTimeoutError as error:
        place = f"sc://{builder.endpoint}"
        words = f"no Spark Connect server answers at {place} within {CONNECT_WAIT_S:g} s"
        raise SessionFailed(f"{words}: is it started, and is the port right?") from error
    finally:
        channel.close()


def _has_connector(spark: "SparkSession") -> bool:
    """Whether the server has the connector. Jars cannot be sent later: Spark 4.2 then reads topics, but fails to write
    them (ClassCastException)."""
    from pyspark.errors import AnalysisException

    unread = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "unread"}
    try:
        return len(spark.read.format("kafka").options(**unread).load().schema) > 0
    except AnalysisException:
        return False
