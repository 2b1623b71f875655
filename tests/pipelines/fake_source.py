"""A fake source for tests of the code around sources: JSON lines in files of a directory, one file a batch."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.kinds import Context, Reading

FIRST_S = 1_800_000_000


class FolderSource:
    options = (Option("folder", text, "the directory", required=True), Option("schema", text, "the columns"))

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        return iter(())

    def read(self, source: SourceSpec, context: Context) -> Reading:
        reader = context.spark.read if source.options["as"] == "table" else context.spark.readStream
        schema = source.options["schema"] or "n INT, word STRING, at TIMESTAMP"
        rows = reader.schema(schema).option("maxFilesPerTrigger", 1).json(source.options["folder"])
        return Reading(rows)


KIND = FolderSource()


def add_file(folder: Path, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add the next file, which appears as a whole. Spark takes files in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f".{number}"
    written.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(written, (FIRST_S + number, FIRST_S + number))
    written.rename(folder / f"{number:05}.json")
