"""The fields of JSON objects from samples of them.

Whole numbers are BIGINT (DECIMAL(38,0) beyond 64 bits), others DOUBLE; a field of several types is STRING, which holds
its JSON text; so is one that was only ever null, and an object without fields.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.problems import PipelineError, Problem
from moldau.pipelines.file.spec import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

NOTHING = "nothing"
"""The type of null, which goes with any other."""
NUMBERS = ("bigint", "decimal(38,0)", "double")
"""Types of numbers; each takes in those before it."""

# A type is one of the names above, "boolean" or "string", or a dict of fields, or a list of the one type of its items.


def infer(values: Iterable[bytes | None], source: SourceSpec) -> "StructType":
    """The fields that the samples have. Samples that are no JSON objects do not count; PipelineError if there is no
    other."""
    found: Any = NOTHING
    for value in values:
        try:
            sample = json.loads(value) if value is not None else None
        except ValueError:
            continue
        if isinstance(sample, dict):
            found = _merge(found, _type(sample))
    if not isinstance(found, dict) or not found:
        place = source.places.get("schema", source.place)
        message = f"source {source.name!r}: there is no JSON object in its topic to infer the schema from"
        raise PipelineError([Problem(place, message, "give the schema, or start when there are records")])
    return _struct(found)


def _type(value: Any) -> Any:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        return "double"
    if isinstance(value, list):
        return [_merge_all(_type(item) for item in value)]
    if isinstance(value, dict):
        return {name: _type(item) for name, item in value.items()}
    return "string"


def _whole(value: int) -> str:
    if -(2**63) <= value < 2**63:
        return "bigint"
    return "decimal(38,0)" if abs(value) < 10**38 else "double"


def _merge_all(types: Iterable[Any]) -> Any:
    found: Any = NOTHING
    for item in types:
        found = _merge(found, item)
    return found


def _merge(one: Any, other: Any) -> Any:
    if one == other or other == NOTHING:
        return one
    if one == NOTHING:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return {name: _merge(one.get(name, NOTHING), other.get(name, NOTHING)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    if one in NUMBERS and other in NUMBERS:
        return max(one, other, key=NUMBERS.index)
    return "string"


def _struct(fields: dict[str, Any]) -> "StructType":
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, _spark(found)) for name, found in fields.items()])


def _spark(found: Any) -> "DataType":
    from pyspark.sql.types import ArrayType, BooleanType, DecimalType, DoubleType, LongType, StringType

    if isinstance(found, dict) and found:
        return _struct(found)
    if isinstance(found, list):
        return ArrayType(_spark(found[0]))
    simple: dict[str, DataType] = {
        "boolean": BooleanType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "decimal(38,0)": DecimalType(38, 0),
    }
    return simple.get(found, StringType()) if isinstance(found, str) else StringType()
