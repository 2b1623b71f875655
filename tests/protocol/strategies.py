"""Hypothesis strategies made from the message tables: any value that a version can carry."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from moldau.protocol.schema import Array, Field, Primitive, Struct, WireType

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


@cache
def structs(struct_type: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances that `version` can carry."""
    rows = struct_type.__fields__.items()
    return st.builds(struct_type, **{name: _field(row, version) for name, row in rows if row.is_in(version)})


def _field(row: Field, version: int) -> st.SearchStrategy[Any]:
    values = _values(row.wire, version)
    return st.none() | values if row.is_nullable_in(version) else values


def _values(wire: WireType, version: int) -> st.SearchStrategy[Any]:
    if isinstance(wire, Array):
        return st.lists(_values(wire.element, version), max_size=2)
    if isinstance(wire, Primitive):
        return _primitives(wire)
    return structs(wire, version)


@cache
def _primitives(wire: Primitive) -> st.SearchStrategy[Any]:
    bits = INTEGER_BITS.get(wire.name)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if bits else OTHERS[wire.name]
