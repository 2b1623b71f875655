"""Columns of a Delta table beside those of the rows that come: added where the table lacks them, refused where it would
keep less of a value than the rows have.

delta-rs casts what it is given to the table's types: 1.75 becomes 1 in a column of whole numbers, a moment its day, and
nobody hears of it. So rows of another type are taken only if every value of theirs has its place in the table's.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from deltalake import DeltaTable

DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Digits of the largest whole number of so many bits."""
DOUBLE_EXACT_BITS = 32
"""Bits of whole numbers that a double has all of."""


def add_lacking(table: "DeltaTable", schema: "pa.Schema", apart: str) -> None:
    """Add the columns that the table lacks, but for the one called `apart`, in a commit of its own: a batch that fails
    afterwards finds them there. Raises ValueError where a column of the rows does not fit that of the table."""
    import pyarrow as pa
    from deltalake import Schema

    there = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    for field in schema:
        if field.name in there and not fits(field.type, there[field.name]):
            raise ValueError(
                f"the column {field.name!r} is {there[field.name]} in the table, and {field.type} in the rows, of "
                "which it could not keep every value: cast it in the view, or write to another table"
            )
    lacking = [field.with_nullable(True) for field in schema if field.name not in there and field.name != apart]
    if lacking:
        table.alter.add_columns(Schema.from_arrow(pa.schema(lacking)).fields)


def fits(rows: "pa.DataType", table: "pa.DataType") -> bool:
    """Whether the table's type has every value of the rows' type. What is nested in either is left to delta-rs, which
    refuses another shape."""
    import pyarrow as pa

    if rows == table or pa.types.is_null(rows) or (_is_text(rows) and _is_text(table)):
        return True
    if _is_bytes(rows) and _is_bytes(table):
        return True
    if pa.types.is_nested(rows):
        return _nested_fits(rows, table)
    if pa.types.is_integer(rows):
        return _integer_fits(rows.bit_width, table)
    if pa.types.is_float32(rows):
        return bool(pa.types.is_float64(table))
    if pa.types.is_decimal(rows) and pa.types.is_decimal(table):
        whole, there = rows.precision - rows.scale, table.precision - table.scale
        return bool(rows.scale <= table.scale and whole <= there)
    return bool((pa.types.is_date(rows) or pa.types.is_timestamp(rows)) and pa.types.is_timestamp(table))


def _integer_fits(bits: int, table: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_integer(table):
        return bool(bits <= table.bit_width)
    if pa.types.is_decimal(table):
        return bool(DIGITS[bits] <= table.precision - table.scale)
    return bool(pa.types.is_float64(table) and bits <= DOUBLE_EXACT_BITS)


def _nested_fits(rows: "pa.DataType", table: "pa.DataType") -> bool:
    """Whether the fields that both have fit."""
    import pyarrow as pa

    if pa.types.is_struct(rows) and pa.types.is_struct(table):
        return all(
            fits(field.type, table.field(field.name).type) for field in rows if table.get_field_index(field.name) >= 0
        )
    if pa.types.is_map(rows) and pa.types.is_map(table):
        return fits(rows.key_type, table.key_type) and fits(rows.item_type, table.item_type)
    if _is_list(rows) and _is_list(table):
        return fits(rows.value_type, table.value_type)
    return False


def _is_list(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return any(test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))
