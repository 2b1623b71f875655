"""Common parts of formats: words for bad records, and values that are one column."""

from typing import TYPE_CHECKING

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NO_VALUE = "the record has no value (a tombstone)"
NOT_UTF8 = "not UTF-8"


def only_column(fields: "StructType", sink: SinkSpec, types: tuple[str, ...]) -> str:
    """The name of the one column, of one of the types (none given: of any)."""
    place = sink.places.get("format", sink.place)
    form = sink.options["format"]
    if len(fields.names) != 1:
        listed = ", ".join(fields.names)
        message = f"sink {sink.name!r}: a value in format {form!r} is one column, not {len(fields.names)}: {listed}"
        raise PipelineError([Problem(place, message, "select one, beside the key's")])
    found = fields[0].dataType.typeName()
    if types and found not in types:
        wanted = " or ".join(types)
        message = f"sink {sink.name!r}: a value in format {form!r} is {wanted}, but {fields.names[0]!r} is {found}"
        raise PipelineError([Problem(place, message)])
    return str(fields.names[0])
