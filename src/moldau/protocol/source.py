"""Python source, written line by line: the part that the two generators share."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import Array, Field, Primitive, Struct

VARINT_BYTES_MAX: Final = 5
"""Bytes of an unsigned varint at most: a 32-bit number, seven bits to the byte."""


TAGS_MAX: Final = 1000
"""Tagged fields of one struct. Kafka's own messages have less than ten of them."""

ELEMENTS_BETWEEN_STEPS: Final = 256
"""Elements after which a codec that works in steps gives way: 0.1 to 0.3 ms (measured, 3.11)."""


class Source:
    """Lines with indentation, fresh names, and the objects that the code refers to."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self._lines: list[str] = []
        self._indent = 0
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write a block whose `opening` ends in a colon; lines written inside are indented."""
        self.line(opening)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, stem: str) -> str:
        """A local variable that nothing else uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A global of the generated code that holds `value`."""
        name = self.name(stem)
        self.scope[name] = value
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        text = "\n".join(self._lines)
        exec(compile(text, f"<{title}>", "exec"), self.scope)
        compiled: Callable[..., Any] = self.scope[function]
        return compiled


def fields_in(struct_type: type[Struct], version: int) -> list[tuple[str, Field]]:
    """The fields of `version` in their order, without the tagged ones."""
    return [(name, row) for name, row in struct_type.__fields__.items() if row.is_in(version) and row.tag < 0]


def tagged_in(struct_type: type[Struct], version: int) -> list[tuple[str, Field]]:
    """The tagged fields of `version`, by tag: KIP-482 wants them ascending."""
    found = [(name, row) for name, row in struct_type.__fields__.items() if row.is_in(version) and row.tag >= 0]
    return sorted(found, key=lambda item: item[1].tag)


def smallest(wire: Primitive | type[Struct], version: int, flexible: bool) -> int:
    """The fewest bytes that a value can take, at least one: a count is checked against it."""
    if isinstance(wire, Primitive):
        return wire.size or (1 if flexible else 4 if wire.name != "string" else 2)
    size = int(flexible)
    for _, row in fields_in(wire, version):
        if isinstance(row.wire, Array):
            size += 1 if flexible else 4
        elif isinstance(row.wire, Primitive):
            size += smallest(row.wire, version, flexible and row.compact)
        else:
            size += 1 if row.is_nullable_in(version) else smallest(row.wire, version, flexible)
    return max(size, 1)


def read_varint(buffer: Any, position: int) -> tuple[int, int]:
    """An unsigned varint and the position after it."""
    first: int = buffer[position]
    if first < 0x80:
        return first, position + 1
    return read_rest(buffer, position + 1, first)


def read_rest(buffer: Any, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, not its only one, is already read."""
    second = buffer[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    third = buffer[position + 1]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, position + 2  # up to here unrolled: the lengths of record batches
    for index in range(3, VARINT_BYTES_MAX):
        byte = buffer[position + index - 1]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index
    raise ProtocolError(f"a varint of more than {VARINT_BYTES_MAX} bytes")


def read_tag_count(buffer: Any, position: int) -> tuple[int, int]:
    """The number of tagged fields that follow, and the position of the first."""
    count, position = read_varint(buffer, position)
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields in one place; {TAGS_MAX} are allowed")
    return count, position


def skip_tags(buffer: Any, position: int) -> tuple[int, int]:
    """The number of tagged fields, all unknown, in a section, and the position after it."""
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        position += size
    return count, position


def write_varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def packer(code: str) -> struct.Struct:
    """Packer of a big-endian number, as all of Kafka's are."""
    return struct.Struct(">" + code)
