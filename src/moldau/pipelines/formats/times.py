"""Times in values: numbers since 1970 in a unit that the file names, and times that no store can keep.

A number in a TIMESTAMP field is seconds to Spark, so that milliseconds, the commonest time in Kafka, become the year
58847: Python cannot hold it, and lakes would keep it without a word. Such a time is a bad record. Where the unit is
named numbers are read in it, and texts as ever.
"""

from typing import TYPE_CHECKING

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.file.spec import SinkSpec, SourceSpec
from moldau.pipelines.formats import nested

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

UNITS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
"""Microseconds of each unit."""
YEARS = (1, 9999)
"""Years that Python, databases and table formats have."""
NUMBER = "DECIMAL(29,6)"
"""Type of a number before it is multiplied: all that fits into 64 bits, in any notation of JSON."""
OPTION = Option(
    "timestamp_format",
    text,
    "Spark's pattern for times, where they are not as in ISO 8601; or `seconds`, `milliseconds`, `microseconds`: "
    "numbers since 1970",
)


def unit_of(spec: SourceSpec | SinkSpec) -> str | None:
    """The unit of times that are numbers; None if none is named."""
    given = spec.options.get(OPTION.name)
    return given if given in UNITS else None


def as_texts(fields: "StructType") -> "StructType":
    """The fields with texts in place of times."""
    from pyspark.sql.types import StringType, StructType, TimestampType

    made = nested.retyped(fields, lambda kind: StringType() if isinstance(kind, TimestampType) else kind)
    return made if isinstance(made, StructType) else fields


def of_texts(found: "Column", fields: "StructType", unit: str, corrupt: str, whole: "Column") -> "Column":
    """The struct `found`, which has texts in place of times, with times in `fields`; `corrupt` is its field for the
    whole text of a value that does not fit, which a text that is no time makes it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, TimestampType

    def is_none(column: "Column", kind: "DataType") -> "Column | None":
        return column.isNotNull() & _moment(column, unit).isNull() if isinstance(kind, TimestampType) else None

    def once(value: "Column") -> "Column":
        """The struct of a value that is computed once: Spark does not move it into a function of an array."""
        made = nested.changed(
            value,
            fields,
            lambda column, _: _moment(column, unit),
            lambda kind: StringType() if isinstance(kind, TimestampType) else kind,
        )
        wrong = nested.some(value, fields, is_none)
        misfit = F.when(wrong, whole) if wrong is not None else F.lit(None).cast("string")
        named = (made[name].alias(name) for name in fields.names)
        return F.when(value.isNotNull(), F.struct(*named, F.coalesce(value[corrupt], misfit).alias(corrupt)))

    return F.element_at(F.transform(F.array(found), once), 1)


def _moment(words: "Column", unit: str) -> "Column":
    """The time of a text: a number in the unit, or else ISO 8601; null if it is neither."""
    from pyspark.sql import functions as F

    micros = (words.try_cast(NUMBER) * F.lit(UNITS[unit])).try_cast("BIGINT")
    return F.when(words.try_cast(NUMBER).isNotNull(), F.timestamp_micros(micros)).otherwise(words.try_cast("TIMESTAMP"))


def as_numbers(row: "Column", fields: "StructType", unit: str) -> "Column":
    """The struct with numbers in the unit in place of times."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, TimestampType

    number = {"seconds": F.unix_seconds, "milliseconds": F.unix_millis, "microseconds": F.unix_micros}[unit]

    def types(kind: "DataType") -> "DataType":
        return LongType() if isinstance(kind, TimestampType) else kind

    return nested.changed(row, fields, lambda column, _: number(column), types)


def outside(column: "Column", kind: "DataType") -> "Column | None":
    """Whether the column has a time in it that no store can keep; None: it cannot have one."""
    return nested.some(column, kind, _is_outside)


def _is_outside(column: "Column", kind: "DataType") -> "Column | None":
    from pyspark.sql import functions as F
    from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

    return ~F.year(column).between(*YEARS) if isinstance(kind, DateType | TimestampType | TimestampNTZType) else None


def words_outside(name: str) -> str:
    hint = "a number is seconds since 1970: `timestamp_format: milliseconds`?"
    return f"field {name!r} is a time outside the years {YEARS[0]} to {YEARS[1]} ({hint})"
