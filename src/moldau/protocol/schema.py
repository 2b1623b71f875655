"""Messages as tables: one class per message, and the versions are data on its fields.

A field names its type on the wire, the versions that carry it and those in which it may be null; `codec` turns them
into code when a version is first used. To the type checker a `Struct` is a frozen, keyword-only dataclass in which
every field has a default. At run time it is slots and an `__init__` compiled on first use: objects of a frozen
dataclass take twice as long to build, and the classes must be cheap to create, as a broker starts in 150 ms.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, dataclass_transform

from moldau.core.files import FileRegion

RecordData = bytes | memoryview | FileRegion
"""Record batches in a message: never copied by the codec."""

ZERO_UUID: Final = b"\0" * 16
NEWEST: Final = 32767
"""The upper end of an open version range: versions are int16."""


class Primitive:
    """A type of the wire. `code` is its `struct` format where its size is fixed, else empty."""

    __slots__ = ("code", "default", "name", "size")

    def __init__(self, name: str, code: str, size: int, default: object) -> None:
        self.name = name
        self.code = code
        self.size = size
        self.default = default

    def __repr__(self) -> str:
        return self.name.upper()


BOOLEAN: Final = Primitive("boolean", "?", 1, False)
INT8: Final = Primitive("int8", "b", 1, 0)
INT16: Final = Primitive("int16", "h", 2, 0)
UINT16: Final = Primitive("uint16", "H", 2, 0)
INT32: Final = Primitive("int32", "i", 4, 0)
UINT32: Final = Primitive("uint32", "I", 4, 0)
INT64: Final = Primitive("int64", "q", 8, 0)
FLOAT64: Final = Primitive("float64", "d", 8, 0.0)
UUID: Final = Primitive("uuid", "16s", 16, ZERO_UUID)
STRING: Final = Primitive("string", "", 0, "")
BYTES: Final = Primitive("bytes", "", 0, b"")
RECORDS: Final = Primitive("records", "", 0, None)


class Array:
    """A list of primitives or of structs."""

    __slots__ = ("element",)

    def __init__(self, element: "Primitive | type[Struct]") -> None:
        self.element = element


WireType = Primitive | Array | type["Struct"]

_BY_TYPE: Final = object()
EMPTY: Final[list[Any]] = []
"""Mark for `[]` as a default; `__init__` makes a new list of it."""


@lru_cache(maxsize=1024)
def version_range(text: str) -> tuple[int, int]:
    """`"3+"`, `"0-12"`, `"7"` or `"none"` as (first, last); nothing is in the range of `"none"`."""
    if text == "none":
        return 1, 0
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), NEWEST
    return int(first), int(last) if dash else int(first)


class Field:
    """One row of a table. Ranges stay text until a codec is generated."""

    __slots__ = ("_default", "compact", "ignorable", "nullable", "tag", "versions", "wire")

    def __init__(
        self, wire: WireType, versions: str, nullable: str, default: Any, tag: int, ignorable: bool, compact: bool
    ) -> None:
        self.wire = wire
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.compact = compact
        self._default = default

    def is_in(self, version: int) -> bool:
        first, last = version_range(self.versions)
        return first <= version <= last

    def is_nullable_in(self, version: int) -> bool:
        first, last = version_range(self.nullable)
        return first <= version <= last

    @property
    def default(self) -> Any:
        """The value of an absent field. `EMPTY` means `[]`; a default struct is shared, since structs are frozen."""
        if self._default is not _BY_TYPE:
            return self._default
        if isinstance(self.wire, Primitive):
            self._default = self.wire.default
        else:
            self._default = EMPTY if isinstance(self.wire, Array) else self.wire()
        return self._default


def field(
    wire: WireType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = _BY_TYPE,
    tag: int = -1,
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """A field that `versions` carry.

    `tag`: its number, for a tagged field. `ignorable`: a value that a version has no room for is dropped instead of
    refused. `compact=False`: the field keeps the old length prefix in flexible versions too.
    """
    return Field(wire, versions, nullable, default, tag, ignorable, compact)


def array(element: Primitive | type["Struct"]) -> Array:
    """The wire type of a list of `element`."""
    return Array(element)


# No `field_specifiers`: a type checker then takes every `= field(...)` for a default, and every field has one.
@dataclass_transform(kw_only_default=True, frozen_default=True)
class StructType(type):
    """Metaclass that turns the rows of a class body into slots."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: Any) -> "StructType":
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in fields:
            del namespace[key]
        namespace["__fields__"] = fields
        namespace["__slots__"] = tuple(fields)
        namespace["__encoders__"] = {}
        namespace["__decoders__"] = {}
        return super().__new__(mcs, name, bases, namespace, **facts)


class Struct(metaclass=StructType):
    """A group of fields inside a message."""

    __fields__: ClassVar[Mapping[str, Field]]
    __encoders__: ClassVar[dict[int, Callable[..., Any]]]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]  # replaces itself on first use
        cls.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.__fields__ is not self.__fields__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__fields__)

    def __repr__(self) -> str:
        values = ((name, getattr(self, name), row.default) for name, row in self.__fields__.items())
        shown = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """A request, a response or a header: a struct that is encoded by itself.

    `versions` is the range that the table describes (first, last), `flexible` the first version with compact lengths
    and tagged fields (KIP-482). The versions that a broker serves are in `apis`. `api_key` is -1 for a message that is
    neither a request nor a response.
    """

    api_key: ClassVar[int]
    versions: ClassVar[tuple[int, int]]
    flexible: ClassVar[int | None]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: tuple[int, int] | None = None, flexible: int | None = None
    ) -> None:
        """Take the table's key and versions; a subclass without any, such as that of a reader, is the same message."""
        if versions is not None:
            cls.api_key = api_key
            cls.versions = versions
            cls.flexible = flexible


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile a plain `__init__`: every field is optional, by position or by name."""
    scope: dict[str, Any] = {"EMPTY": EMPTY}
    parameters, lines = ["self"], []
    for name, row in cls.__fields__.items():
        scope[f"default_{name}"] = row.default
        parameters.append(f"{name}=default_{name}")
        value = f"[] if {name} is EMPTY else {name}" if row.default is EMPTY else name
        lines.append(f"    self.{name} = {value}")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or ["    pass"])
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    return init
