"""Helpers for tests of sinks that write batch by batch: rows, batches, and a stream that is begun again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.spec import SinkSpec
from moldau.pipelines.kinds import Context, sink_kind
from moldau.pipelines.sinks.batches import Batch
from tests.pipelines.specs import pipeline, sink
from tests.pipelines.streams import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def batch(number: int, checkpoint: str = "first") -> Batch:
    return Batch("visits.out", checkpoint, number)


def made(kind: str, **options: Any) -> SinkSpec:
    """A sink's spec as a file would give it, with the output mode that a run fills in."""
    return sink(kind, **{"mode": "update" if options.get("key") else "append", **options})


def frame(spark: "SparkSession", schema: str, rows: Sequence[tuple[Any, ...]]) -> "DataFrame":
    return spark.createDataFrame(list(rows), schema)


class Stream:
    """Files of JSON lines into a sink, in batches of one file each."""

    def __init__(self, spark: "SparkSession", storage: Path, spec: SinkSpec) -> None:
        self._spark, self._sink = spark, spec
        self._incoming = storage / "incoming"
        self._incoming.mkdir(parents=True)
        self._checkpoint = storage / "checkpoints" / spec.name
        self._context = Context(spark, pipeline(storage, sinks={spec.name: spec}), storage)

    def bring(self, *lines: str) -> None:
        """Add one more file, to be one batch."""
        number = len(list(self._incoming.iterdir()))
        (self._incoming / f"{number:03}.json").write_text("\n".join(lines))

    def run(self, schema: str) -> None:
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        writer = sink_kind(self._sink.kind).attach(self._sink, reader.json(str(self._incoming)), self._context)
        run_to_end(writer, self._checkpoint, self._sink.options["mode"])

    def forget_last_commit(self) -> None:
        """Forget the last commit, as if the driver had been killed after the sink wrote the batch and before Spark took
        note of it."""
        commits = sorted(
            (path for path in (self._checkpoint / "commits").iterdir() if path.name.isdigit()), key=_number
        )
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


def run_and_begin_again(stream: Stream) -> None:
    """Run three batches, of which the last is written twice, then one more."""
    schema = "id BIGINT, name STRING"
    stream.bring('{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}')
    stream.bring('{"id": 3, "name": "c"}')
    stream.run(schema)
    stream.forget_last_commit()
    stream.bring('{"id": 4, "name": "d"}')
    stream.run(schema)


EXPECTED = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
