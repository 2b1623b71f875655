"""Rows to an HTTP address, as JSON: at least once.

Each request carries a header Idempotency-Key of query, checkpoint, batch and part, the same when the batch is begun
again: a receiver that keeps them makes it exactly once. Connection errors and the answers 408, 425, 429 and 5xx are
tried again, each time after a longer pause or the one that the answer asks for (Retry-After). Any other refusal ends
the run: the receiver will not like the rows better the next time, and to leave them out would lose them silently.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from moldau.pipelines.file.options import Option, choice, mapping, text, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SinkSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.sinks import batches
from moldau.pipelines.sinks.batches import COLUMNS, Batch, Owner
from moldau.pipelines.sinks.patience import logger

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TRY_AGAIN = (408, 425, 429)
PAUSE_S, PAUSE_MAX_S = 0.5, 30.0
ANSWER_SHOWN_MAX = 300
BODY = "body"


class HttpSink:
    options = (
        Option("http", text, "the address", required=True),
        Option("method", choice("POST", "PUT", "PATCH"), "the method", default="POST"),
        Option("request_headers", mapping, "headers of each request, such as Authorization", default={}),
        Option("rows", whole, "rows in one request, as a JSON array; 1: the row itself", default=500),
        Option("timeout", whole, "seconds to wait for an answer", default=30),
        Option("retry", whole, "seconds to try a request again before the run ends", default=300),
        COLUMNS,
    )
    guarantee = "at least once (exactly once if the receiver keeps Idempotency-Key)"

    def check(self, sink: SinkSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002 - the protocol's
        parts = urlsplit(sink.options["http"])
        if parts.scheme not in ("http", "https") or not parts.hostname:
            place = sink.places.get("http", sink.place)
            yield Problem(
                place, f"sink {sink.name!r}: no address of HTTP: {sink.options['http']!r}", "https://host/path"
            )

    def attach(self, sink: SinkSpec, rows: "DataFrame", context: Context) -> "DataStreamWriter":
        return batches.attach(sink, bodies(sink, rows), context, writer(sink))


KIND = HttpSink()


def bodies(sink: SinkSpec, rows: "DataFrame") -> "DataFrame":
    """One column: each row as JSON, nulls included."""
    from pyspark.sql import functions as F

    chosen = batches.select(sink, rows)
    return chosen.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias(BODY))


def writer(sink: SinkSpec) -> "HttpWriter":
    options = sink.options
    return HttpWriter(
        batches.owner(sink),
        options["http"],
        options["method"],
        dict(options["request_headers"]),
        max(1, options["rows"]),
        max(1, options["timeout"]),
        options["retry"],
    )


@dataclass(frozen=True, slots=True)
class HttpWriter:
    """Writer to an HTTP address; `pause` is time.sleep, except in tests."""

    sink: Owner
    url: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    rows_max: int = 500
    timeout_s: float = 30.0
    retry_s: float = 300.0
    pause: Callable[[float], None] = time.sleep

    def write(self, rows: "pa.Table", batch: Batch) -> bool:
        texts = rows.column(BODY).to_pylist()
        for part, begin in enumerate(range(0, len(texts), self.rows_max)):
            chosen = texts[begin : begin + self.rows_max]
            body = chosen[0] if self.rows_max == 1 else "[" + ",".join(chosen) + "]"
            self._send(body.encode(), f"{batch.owner}/{batch.number}/{part}")
        return True

    def _send(self, body: bytes, identity: str) -> None:
        headers = {"Content-Type": "application/json", **self.headers, "Idempotency-Key": json.dumps(identity)}
        request = urllib.request.Request(self.url, body, headers, method=self.method)
        waited, pause = 0.0, PAUSE_S
        while True:
            refusal, asked = self._refusal(request)
            if refusal is None:
                return
            if waited >= self.retry_s:
                raise self.sink.error(f"{self.url} has refused for {waited:.0f} s: {refusal}")
            pause = min(PAUSE_MAX_S, asked if asked is not None else pause)
            logger.warning("sink %r: waits %.0f s and tries again: %s", self.sink.name, pause, refusal)
            self.pause(pause)
            waited, pause = waited + pause, pause * 2

    def _refusal(self, request: urllib.request.Request) -> tuple[str | None, float | None]:
        """The reason to try again, and the seconds to wait if the receiver says so; None if the request was taken."""
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                answer.read()
            return None, None
        except urllib.error.HTTPError as error:
            with error:
                shown = error.read(ANSWER_SHOWN_MAX).decode("utf-8", "replace").strip()
            said = f"{error.code} {error.reason}" + (f": {shown}" if shown else "")
            if error.code not in TRY_AGAIN and error.code < 500:
                hint = "mend the rows in a view, or the address and its headers; the next run sends the batch again"
                raise self.sink.error(f"{self.url} refuses the rows: {said}", hint) from error
            after = error.headers.get("Retry-After", "")
            return said, float(after) if after.isdigit() else None
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__, None
