"""One order at a time joined with a table topic of many keys, and the capture of PostgreSQL's changes, on Moldau.

A batch of one order is timed by Spark itself, from its trigger to its commit; without a table, then with tables of so
many keys. A table takes less than the batch itself if the batch at most doubles. The capture copies changes that are
there into a topic, snapshot and slot included.
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from bench import kafka
from bench.process import Server
from moldau.pipelines.file.files import load
from moldau.pipelines.run.display import Display
from moldau.pipelines.run.runner import CONTINUOUS, ONCE, Run, Stop
from moldau.pipelines.spark.session import beside, session
from tests.pipelines import postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = (100_000, 1_000_000)
ORDERS = 20
WARM_UP = 8
CHANGES = 200_000
TIMEOUT_S = 300.0
PARTITIONS = 4

JOIN = """
trigger: 1 millisecond
sources:
  orders: {{topic: orders-{keys}, schema: "id INT, customer INT"}}
  customers: {{topic: customers-{keys}, as: table, schema: "id INT, name STRING, town STRING"}}
views:
  placed: SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id
sinks:
  out: {{from: {rows}, sqlite: out.db, table: placed, key: id, newest_by: none}}
"""
CAPTURE = """
sources:
  orders: {{postgres: "{url}", table: orders}}
sinks:
  out: {{from: orders, topic: captured, key: id, create: {{partitions: 4}}}}
"""


class Figure(NamedTuple):
    name: str
    value: float
    note: str = ""


def figures(server: Server, scratch: Path, keys: tuple[int, ...] = KEYS, changes: int = CHANGES) -> Iterator[Figure]:
    """The figures, each as soon as it is known."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    _fill(server, 0)
    first = _file(directory, server, "alone", JOIN.format(keys=0, rows="orders"))
    spark = session(load(str(first)))
    try:
        alone = _batch_ms(spark, server, first, 0)
        yield Figure("one order, no table: ms a batch", alone)
        for number in keys:
            _fill(server, number)
            file = _file(directory, server, f"joined-{number}", JOIN.format(keys=number, rows="placed"))
            taken = _batch_ms(spark, server, file, number)
            yield Figure(f"one order, a table of {number:,} keys: ms a batch", taken, f"{taken - alone:+.0f} ms")
        with postgres_server.running() as database:
            rate = _capture(
                spark, database, _file(directory, server, "capture", CAPTURE.format(url=database.url)), changes
            )
        yield Figure("capture of PostgreSQL's changes, to a topic: rows/s", rate)
    finally:
        spark.stop()


def _file(directory: Path, server: Server, name: str, text: str) -> Path:
    file = directory / name / "pipeline.yaml"
    file.parent.mkdir()
    file.write_text(f"name: bench-{name}\nbootstrap: {server.bootstrap}\n{text}")
    return file


def _fill(server: Server, keys: int) -> None:
    for topic, partitions in ((f"orders-{keys}", 1), (f"customers-{keys}", PARTITIONS)):
        kafka.create_topic(server.bootstrap, topic, partitions)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000}
    )
    for number in range(keys):
        value = {"id": number, "name": f"customer {number}", "town": f"town {number % 1000}"}
        producer.produce(f"customers-{keys}", json.dumps(value).encode(), str(number).encode())
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush(TIMEOUT_S)


def _batch_ms(spark: "SparkSession", server: Server, file: Path, keys: int) -> float:
    """Median time of a batch of one order."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    own = beside(spark, load(str(file)))
    with _running(own, file):
        for number in range(ORDERS):
            order = {"id": number, "customer": number * 7919 % max(1, keys)}
            producer.produce(f"orders-{keys}", json.dumps(order).encode())
            producer.flush(TIMEOUT_S)
            _until(lambda number=number: len(_taken_ms(own, "out")) > number)  # type: ignore[misc]
        return statistics.median(_taken_ms(own, "out")[WARM_UP:])


def _taken_ms(spark: "SparkSession", sink: str) -> list[int]:
    """Times of the batches with rows so far."""
    queries = [query for query in spark.streams.active if str(query.name).endswith(f".{sink}")]
    return [
        each["durationMs"]["triggerExecution"]
        for query in queries
        for each in query.recentProgress
        if each["numInputRows"]
    ]


@contextmanager
def _running(spark: "SparkSession", file: Path) -> Iterator[None]:
    stop = Stop()
    run = Run(load(str(file)), spark, CONTINUOUS, stop, Display(StringIO()))
    thread = threading.Thread(target=run.to_the_end)
    thread.start()
    try:
        yield
    finally:
        stop.ask()
        thread.join(TIMEOUT_S)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("no batch ends")
        time.sleep(0.01)


def _capture(spark: "SparkSession", database: postgres_server.Server, file: Path, changes: int) -> float:
    """Changes per second, from a run's begin to its end; half of them are inserts, half updates."""
    database.run("CREATE TABLE orders (id INT PRIMARY KEY, amount INT)")
    spec = load(str(file))
    Run(spec, spark, ONCE, display=Display(StringIO())).to_the_end()  # makes the slot
    half = changes // 2
    database.run(
        f"INSERT INTO orders SELECT n, n FROM generate_series(1, {half}) n", "UPDATE orders SET amount = amount + 1"
    )
    begun = time.perf_counter()
    Run(spec, spark, ONCE, display=Display(StringIO())).to_the_end()
    return changes / (time.perf_counter() - begun)
