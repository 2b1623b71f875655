"""What every sink that writes batch by batch has from `batches`: order of what is made durable, here."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # no type information
import pytest

from moldau.pipelines.sinks.batches import Batch, EachBatch

NUMBER = 7


ROWS = pa.table({"id": [1]})


class Rows:
    def toArrow(self) -> pa.Table:
        return ROWS


def test_the_plan_of_a_batch_is_synced_before_the_sink_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = [tmp_path / "metadata", tmp_path / "offsets" / str(NUMBER), tmp_path / "sources" / "0" / str(NUMBER)]
    for file in (*plan, tmp_path / "offsets" / "6"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"id": "checkpoint"}))
    done: list[object] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    class Writer:
        def write(self, rows: Any, batch: Batch) -> bool:
            done.append((rows, batch))
            return True

    monkeypatch.setattr(os, "fsync", noted)
    EachBatch("query", tmp_path, Writer())(Rows(), NUMBER)  # type: ignore[arg-type]  # it needs no Spark for this
    assert done.pop() == (ROWS, Batch("query", "checkpoint", NUMBER))
    assert done == [path for file in plan for path in (file, file.parent)]
