"""The HTTP sink, on a receiver that can be told to fail."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import sink_kind
from moldau.pipelines.sinks.batches import owner
from moldau.pipelines.sinks.http import HttpWriter, bodies
from tests.pipelines.batch_sinks import Stream, batch, frame, made, run_and_begin_again
from tests.pipelines.specs import pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THREE = [(1, "é", "c"), (2, None, "c"), (3, "c", "c")]
DROP = 0
"""In place of a status: the connection is closed without an answer."""


class Receiver:
    """`faults`: what it answers to the next requests instead of 200, a status with a Retry-After or none."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.keys: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[tuple[int, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/rows"

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, after = receiver.faults.pop(0) if receiver.faults else (200, "")
            receiver.keys.append(self.headers["Idempotency-Key"])
            if status == DROP:
                self.close_connection = True
                return
            if status == 200:
                receiver.taken.append(json.loads(body))
                receiver.headers.append(dict(self.headers))
            self.send_response(status)
            if after:
                self.send_header("Retry-After", after)
            self.end_headers()
            self.wfile.write(b'{"error": "field name is too long"}' if status == 422 else b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def write(spec: SinkSpec, rows: "DataFrame", number: int = 0, retry_s: float = 60.0) -> list[float]:
    """The pauses that it made, none of them in earnest."""
    pauses: list[float] = []
    writer = HttpWriter(
        owner(spec), spec.options["http"], rows_max=spec.options["rows"], retry_s=retry_s, pause=pauses.append
    )
    writer.write(bodies(spec, rows).toArrow(), batch(number))
    return pauses


def test_rows_come_as_arrays_or_alone_with_the_same_key_when_sent_again(
    spark: "SparkSession", receiver: Receiver
) -> None:
    rows = frame(spark, "id BIGINT, name STRING, _op STRING", THREE).coalesce(1)
    spec = made("http", http=receiver.url, rows=2)
    write(spec, rows)
    assert receiver.taken == [[{"id": 1, "name": "é"}, {"id": 2, "name": None}], [{"id": 3, "name": "c"}]]
    write(spec, rows)
    assert receiver.keys[:2] == receiver.keys[2:] == ['"visits.out/first/0/0"', '"visits.out/first/0/1"']
    write(made("http", http=receiver.url, rows=1), rows.limit(1), 1)
    assert receiver.taken[-1] == {"id": 1, "name": "é"}


def test_what_may_pass_is_tried_again_with_longer_pauses(spark: "SparkSession", receiver: Receiver) -> None:
    receiver.faults = [(503, ""), (DROP, ""), (429, "7"), (500, "")]
    pauses = write(made("http", http=receiver.url), frame(spark, "id INT", [(1,)]))
    assert pauses == [0.5, 1.0, 7.0, 14.0]
    assert receiver.taken == [[{"id": 1}]]
    assert len(set(receiver.keys)) == 1


def test_a_refusal_ends_the_run_with_the_receivers_words(spark: "SparkSession", receiver: Receiver) -> None:
    receiver.faults = [(422, "")]
    with pytest.raises(PipelineError, match=r"pipeline.yaml:1: sink 'out': .*refuses the rows: 422 .*too long"):
        write(made("http", http=receiver.url), frame(spark, "id INT", [(1,)]))
    assert len(receiver.keys) == 1


def test_it_gives_up_after_a_while(spark: "SparkSession", receiver: Receiver) -> None:
    receiver.faults = [(503, "")] * 20
    with pytest.raises(PipelineError, match=r"has refused for \d+ s: 503"):
        write(made("http", http=receiver.url), frame(spark, "id INT", [(1,)]), retry_s=10.0)


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    [problem] = sink_kind("http").check(made("http", http="localhost:80/rows"), pipeline(tmp_path))
    assert "no address of HTTP" in problem.message


def test_a_stream_whose_last_batch_is_begun_again_sends_it_under_the_same_key(
    spark: "SparkSession", storage: Path, receiver: Receiver
) -> None:
    spec = made("http", http=receiver.url, request_headers={"Authorization": "Bearer x"})
    run_and_begin_again(Stream(spark, storage, spec))
    sent = dict(zip(receiver.keys, receiver.taken, strict=True))
    assert len(receiver.keys) == 4
    assert len(sent) == 3
    assert sorted(row["id"] for rows in sent.values() for row in rows) == [1, 2, 3, 4]
    assert all(headers["Authorization"] == "Bearer x" for headers in receiver.headers)
