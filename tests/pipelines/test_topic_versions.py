"""Rows that come batches late for a compacted topic: versions that are kept beside the checkpoint."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.sinks.batches import Owner
from moldau.pipelines.sinks.topic_versions import WithoutLate
from tests.pipelines.specs import PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWNER = Owner("out", PLACE)


def _never(*_: object) -> None:
    raise AssertionError("nothing is written here")


def _late(checkpoint: Path, rows: Sequence[tuple[bytes, *tuple[Any, ...]]], *kinds: pa.DataType) -> list[bool]:
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), (pa.binary(), *kinds), strict=True)
    ]
    names = ["key", *(f"__version_{number}" for number in range(len(kinds)))]
    return WithoutLate(OWNER, checkpoint, _never).note(pa.table(columns, names=names))


def test_a_row_is_late_if_its_key_was_written_with_a_newer_version(tmp_path: Path) -> None:
    day, version = pa.timestamp("us", "UTC"), pa.int32()
    assert _late(tmp_path, [(b"a", 1, 5), (b"a", 2, 1), (b"b", None, 9)], day, version) == [False] * 3
    again = [(b"a", 1, 5), (b"a", 2, 1), (b"b", None, 9)]
    assert _late(tmp_path, again, day, version) == [True, False, False], "the newest of a batch that is begun again"
    rows = [(b"a", 2, 0), (b"a", 2, 2), (b"a", None, 9), (b"b", 1, None), (b"c", None, None)]
    assert _late(tmp_path, rows, day, version) == [True, False, True, False, False]
    assert _late(tmp_path, [(b"a", 2, 1), (b"b", None, 9)], day, version) == [True, True]


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        (pa.decimal128(30, 2), Decimal("9.50"), Decimal("10.00")),
        (pa.string(), "10", "9"),
        (pa.binary(), b"\x09", b"\x10"),
        (pa.float64(), -1.5, 0.25),
        (pa.date32(), 9, 10),
        (pa.int64(), 2**53, 2**53 + 1),
    ],
)
def test_versions_of_every_type_keep_their_order(tmp_path: Path, kind: pa.DataType, older: Any, newer: Any) -> None:
    assert _late(tmp_path, [(b"k", newer)], kind) == [False]
    assert _late(tmp_path, [(b"k", older), (b"k", newer)], kind) == [True, False]


def test_versions_of_another_type_than_before_are_refused(tmp_path: Path) -> None:
    _late(tmp_path, [(b"k", 1)], pa.int64())
    with pytest.raises(PipelineError, match=r"sink 'out': its versions .* cannot be compared .*reset --sink"):
        _late(tmp_path, [(b"k", "1")], pa.string())


def test_only_the_rows_that_come_late_are_left_out_of_a_batch(spark: "SparkSession", tmp_path: Path) -> None:
    written: list[list[tuple[Any, ...]]] = []

    def write(rows: "DataFrame", _: int) -> None:
        assert rows.columns == ["value", "key", "__version_0"]
        written.append(sorted((row["value"], row["__version_0"]) for row in rows.collect()))

    def batch(*rows: tuple[str, bytes | None, int | None]) -> "DataFrame":
        return spark.createDataFrame(list(rows), "value STRING, key BINARY, __version_0 INT")

    each = WithoutLate(OWNER, tmp_path, write)
    each(batch(("a2", b"a", 2), ("b1", b"b", 1), ("none", None, 1)), 0)
    each(batch(("a1", b"a", 1), ("a3", b"a", 3), ("b1", b"b", 1), ("none", None, 1), ("a?", b"a", None)), 1)
    assert written == [[("a2", 2), ("b1", 1), ("none", 1)], [("a3", 3), ("b1", 1), ("none", 1)]]
