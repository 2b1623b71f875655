"""Notes of records that were set aside, in the pipeline's storage: of which a view could make no rows (`poison.py`)."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.sinks.batches import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Noted = dict[str, dict[str, dict[str, list[int]]]]
"""Offsets by source, topic and partition."""


def left_out(source: SourceSpec, rows: "DataFrame", storage: Path) -> "DataFrame":
    """The rows without those of records that were set aside."""
    from pyspark.sql import functions as F

    noted = _read(storage).get(source.name, {}) if source.kind == "topic" else {}
    for topic, partitions in noted.items():
        for partition, places in partitions.items():
            there = (F.col("_topic") == topic) & (F.col("_partition") == int(partition))
            rows = rows.where(~(there & F.col("_offset").isin(places)))
    return rows


def forget(storage: Path) -> None:
    """Forget what was set aside: all is read anew, perhaps by another view."""
    _file(storage).unlink(missing_ok=True)


def _file(storage: Path) -> Path:
    return storage / "set-aside.json"


def _read(storage: Path) -> Noted:
    try:
        noted: Noted = json.loads(_file(storage).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return noted


def note(storage: Path, records: Iterable[tuple[str, str, int, int]]) -> None:
    """Note records as set aside, each by source, topic, partition and offset. Durable on return."""
    noted = _read(storage)
    for source, topic, partition, offset in records:
        noted.setdefault(source, {}).setdefault(topic, {}).setdefault(str(partition), []).append(offset)
    new = _file(storage).with_suffix(".new")
    new.write_text(json.dumps(noted, indent=1), encoding="utf-8")
    sync(new)
    os.replace(new, _file(storage))
    sync(storage)
