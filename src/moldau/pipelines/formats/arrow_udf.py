"""Values decoded and encoded by Python in Spark's workers, a batch of Arrow at a time.

The law: a value that cannot be decoded becomes its reason; any error of a decoder over one value is about that value.
Only an error that is about the registry ends the batch.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from moldau.pipelines.formats.framing import BadValue
from moldau.pipelines.formats.one_column import NO_VALUE
from moldau.pipelines.schema_registry import RegistryRefused, UnknownSchema

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

DATA = "data"
REASON = "reason"


class ValueDecoder(Protocol):
    """Maker of a decoder. It goes to the workers, so it must be of plain data."""

    def decoder(self) -> Callable[[bytes], Any]:
        """A function from one value to data as pyarrow takes it for the type. Called once a batch."""


class ValueEncoder(Protocol):
    """Maker of an encoder. It goes to the workers, so it must be of plain data."""

    def encoder(self) -> Callable[[dict[str, Any]], bytes]:
        """A function from one row to its bytes. Called once a batch."""


def decoded(value: "Column", decoder: ValueDecoder, fields: "StructType") -> "Column":
    """A struct of the data and the reason."""
    from pyspark.sql.types import StringType, StructType

    kind = StructType().add(DATA, fields).add(REASON, StringType())
    arrow = arrow_type(fields)

    def decode(values: "pa.Array") -> "pa.Array":
        return decode_batch(values, decoder, arrow)

    return _udf(decode, kind)(value)


def split(value: "Column") -> "tuple[Column, Column]":
    return value[DATA], value[REASON]


def encoded(row: "Column", encoder: ValueEncoder) -> "Column":
    from pyspark.sql.types import BinaryType

    def encode(values: "pa.Array") -> "pa.Array":
        return encode_batch(values, encoder)

    return _udf(encode, BinaryType())(row)


def _udf(function: "Callable[[pa.Array], pa.Array]", kind: "DataType") -> "Callable[[Column], Column]":
    import pyarrow as pa
    from pyspark import __version__ as version
    from pyspark.sql import functions as F

    if not hasattr(F, "arrow_udf"):
        raise RuntimeError(f"Avro and Protobuf need PySpark 4.1 or newer, not {version}")
    function.__annotations__ = {"values": pa.Array, "return": pa.Array}
    made: Callable[[Column], Column] = F.arrow_udf(function, kind)
    return made


def decode_batch(values: "pa.Array", decoder: ValueDecoder, kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    decode = decoder.decoder()
    data: list[Any] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        found, reason = _one(decode, value)
        data.append(found)
        reasons.append(reason)
    return pa.StructArray.from_arrays([_array(data, reasons, kind), pa.array(reasons, pa.string())], [DATA, REASON])


def _one(decode: Callable[[bytes], Any], value: bytes | None) -> tuple[Any, str | None]:
    if value is None:
        return None, NO_VALUE
    try:
        return decode(value), None
    except RegistryRefused:
        raise
    except (BadValue, UnknownSchema) as error:
        return None, str(error)
    except Exception as error:  # a decoder meets any bytes with any error
        return None, f"{type(error).__name__}: {error}"


def _array(data: list[Any], reasons: list[str | None], kind: "pa.DataType") -> "pa.Array":
    """An Arrow array. If Arrow refuses a value (a number too great for its type), the values are tried one by one."""
    import pyarrow as pa

    try:
        return pa.array(data, kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass
    for place, item in enumerate(data):
        try:
            pa.array([item], kind)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            data[place], reasons[place] = None, f"a field does not fit its type: {error}"
    return pa.array(data, kind)


def encode_batch(rows: "pa.Array", encoder: ValueEncoder) -> "pa.Array":
    import pyarrow as pa

    encode = encoder.encoder()
    found = rows.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if row is None else encode(row) for row in found], pa.binary())


def arrow_type(kind: "DataType") -> "pa.DataType":
    """Arrow's type for Spark's."""
    import pyarrow as pa
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, T.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _simple()[kind.typeName()]()


def _simple() -> "dict[str, Callable[[], pa.DataType]]":
    import pyarrow as pa

    return {
        "boolean": pa.bool_,
        "integer": pa.int32,
        "long": pa.int64,
        "float": pa.float32,
        "double": pa.float64,
        "string": pa.string,
        "binary": pa.binary,
        "date": pa.date32,
        "timestamp": lambda: pa.timestamp("us", "UTC"),
        "timestamp_ntz": lambda: pa.timestamp("us"),
        "daytimeinterval": lambda: pa.duration("us"),
    }
