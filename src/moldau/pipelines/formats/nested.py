"""Values inside values: a question or a change for every simple value in structs, arrays and maps."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    Ask = Callable[["Column", DataType], "Column | None"]
    Change = Callable[["Column", DataType], Column]
    Types = Callable[[DataType], DataType]


def some(column: "Column", kind: "DataType", ask: "Ask") -> "Column | None":
    """Whether the answer is yes for some simple value in the column; None: `ask` has no question for its types."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        inner = [some(column[field.name], field.dataType, ask) for field in kind]
        asked = [item for item in inner if item is not None]
        return _any(asked) if asked else None
    if isinstance(kind, ArrayType | MapType):
        inside = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
        if some(column, inside, ask) is None:
            return None

        def is_so(item: "Column") -> "Column":
            return _any([condition for condition in [some(item, inside, ask)] if condition is not None])

        items = column if isinstance(kind, ArrayType) else F.map_values(column)
        return F.exists(items, is_so)
    return ask(column, kind)


def _any(conditions: "list[Column]") -> "Column":
    from pyspark.sql import functions as F

    found = F.lit(False)
    for condition in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found


def changed(column: "Column", kind: "DataType", change: "Change", types: "Types") -> "Column":
    """The column with its simple values changed; `types` says which type a simple one becomes. What stays as it is is
    not taken apart."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if retyped(kind, types) == kind:
        return column
    if isinstance(kind, StructType):
        made = F.struct(*(changed(column[each.name], each.dataType, change, types).alias(each.name) for each in kind))
        return F.when(column.isNotNull(), made)
    if isinstance(kind, ArrayType):
        inside = kind.elementType
        return F.transform(column, lambda item: changed(item, inside, change, types))
    if isinstance(kind, MapType):
        value = kind.valueType
        return F.transform_values(column, lambda _, item: changed(item, value, change, types))
    return change(column, kind)


def retyped(kind: "DataType", types: "Types") -> "DataType":
    """The type with its simple ones in place of which `types` gives others."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(each.name, retyped(each.dataType, types), each.nullable) for each in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(retyped(kind.elementType, types), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, retyped(kind.valueType, types), kind.valueContainsNull)
    return types(kind)
