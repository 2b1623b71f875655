"""Decoding without a topic: records as a static data frame, in the columns that Spark has for Kafka."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.formats.decoding import decode
from moldau.pipelines.kinds import Context, format_kind
from tests.pipelines.specs import pipeline, sink, source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Fields of the good records by offset, and reasons of the bad."""

    rows: dict[int, dict[str, Any]]
    reasons: dict[int, str]

    @property
    def row(self) -> dict[str, Any]:
        """The fields of the only record, which is good."""
        assert self.reasons == {}
        [row] = self.rows.values()
        return row

    @property
    def reason(self) -> str:
        """The reason of the only record, which is bad."""
        assert self.rows == {}
        [reason] = self.reasons.values()
        return reason


def raw(spark: "SparkSession", values: "Sequence[bytes | str | None]") -> "DataFrame":
    """Records of topic `t`, their offsets from 0."""
    rows = []
    for offset, value in enumerate(values):
        data = value.encode() if isinstance(value, str) else value
        rows.append((b"k", None if data is None else bytearray(data), "t", 0, offset, MOMENT, None))
    return spark.createDataFrame(rows, RAW)


def decoded(spark: "SparkSession", storage: Path, values: "Sequence[bytes | str | None]", **options: Any) -> Decoded:
    """The records as a topic source with these options decodes them."""
    made = (
        source("topic", "visits", topic="t", **options)
        if "topic" not in options
        else source("topic", "visits", **options)
    )
    reading = decode(raw(spark, values), made, context(spark, storage))
    assert reading.bad is not None
    rows = {}
    for row in reading.rows.collect():
        fields = row.asDict(recursive=True)
        rows[fields["_offset"]] = {name: value for name, value in fields.items() if not name.startswith("_")}
    return Decoded(rows, {row.offset: row.reason for row in reading.bad.collect()})


def context(spark: "SparkSession", storage: Path, **changes: Any) -> Context:
    return Context(spark, pipeline(storage, **changes), storage)


def encoded(rows: "DataFrame", storage: Path, **options: Any) -> list[bytes]:
    """The values of the rows, as a topic sink with these options writes them."""
    from pyspark.sql import functions as F

    made = sink("topic", topic=options.pop("topic", "t"), **options)
    kind = format_kind(made.options["format"])
    value = kind.encode(F.struct(*rows.columns), rows.schema, made, context(rows.sparkSession, storage))
    return [bytes(row.value) for row in rows.select(value.alias("value")).collect()]
