"""`rate`: a number of rows each second, for trying things: `timestamp` and `value`, a number that grows by one."""

from collections.abc import Iterator
from typing import Any

from moldau.pipelines.file.options import Option, whole
from moldau.pipelines.file.problems import Problem
from moldau.pipelines.file.spec import PipelineSpec, SourceSpec
from moldau.pipelines.kinds import Context, Reading


def at_least_one(value: Any) -> int:
    if whole(value) == 0:
        raise ValueError("a whole number, 1 or more")
    return whole(value)


class Rate:
    options: tuple[Option, ...] = (Option("rate", at_least_one, "rows per second", required=True),)

    def check(self, source: SourceSpec, pipeline: PipelineSpec) -> Iterator[Problem]:  # noqa: ARG002
        if source.options["as"] == "table":
            yield Problem(source.places.get("as", source.place), f"source {source.name!r}: 'rate' is only a stream")

    def read(self, source: SourceSpec, context: Context) -> Reading:
        stream = context.spark.readStream.format("rate").option("rowsPerSecond", source.options["rate"])
        return Reading(stream.load())


KIND = Rate()
