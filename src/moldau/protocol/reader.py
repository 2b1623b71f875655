"""Generator of the function that reads one version of a message.

Neighbouring fields of fixed size, and the length that follows them, are one `unpack_from` straight into the slots of
the new object. The length of a string is not compared with the frame on the spot: a slice past the end is short, the
position then lies beyond the end, and the next read or the last line of the function refuses it.
"""

import struct
from collections.abc import Callable
from typing import Any, cast

from moldau.protocol.errors import ProtocolError, TooManyElements
from moldau.protocol.schema import (
    BYTES,
    EMPTY,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Message,
    Primitive,
    Struct,
    StructType,
    WireType,
)
from moldau.protocol.source import (
    ELEMENTS_BETWEEN_STEPS,
    Source,
    fields_in,
    packer,
    read_rest,
    read_tag_count,
    read_varint,
    skip_tags,
    smallest,
    tagged_in,
)


def generate(message_type: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """A function of (buffer, position, elements_max) that returns (message, position); `in_steps`, a generator that
    yields now and then and returns the same."""
    return _Reader(message_type, version, in_steps).generate()


class _Reader:
    def __init__(self, message_type: type[Message], version: int, in_steps: bool) -> None:
        self.message_type = message_type
        self.version = version
        self.in_steps = in_steps
        self.title = f"{message_type.__name__} v{version}"
        self.flexible = message_type.flexible is not None and version >= message_type.flexible
        self.has_records = _has_records(message_type, version)
        self.source = Source(
            {
                "errors": (struct.error, IndexError, UnicodeDecodeError),
                "malformed": self._malformed,
                "TooManyElements": TooManyElements,
                "tag_count": read_tag_count,
                "varint": read_varint,
                "rest": read_rest,
                "skip_tags": skip_tags,
                "unpack_from": struct.unpack_from,
            }
        )
        self._run: list[tuple[str, str]] = []

    def generate(self) -> Callable[..., Any]:
        source = self.source
        with source.block("def read(buffer, pos, left=1 << 31):"):
            self._prepare_buffer()
            source.line("end = len(buffer)")
            if self.in_steps:
                source.line(f"due = {ELEMENTS_BETWEEN_STEPS}")
                source.line("yield")
            with source.block("try:"):
                message = self.struct(self.message_type)
                self.flush()
            with source.block("except errors as cause:"):
                source.line("raise malformed(cause) from cause")
            with source.block("if pos > end:"):
                source.line("raise malformed('it ends too early')")
            source.line(f"return {message}, pos")
        return source.compile("read", f"read {self.title}")

    def _prepare_buffer(self) -> None:
        # Slicing and decoding `bytes` takes half the time of a memoryview. Only a message with records is large,
        # and it is left where it is.
        if self.has_records:
            self.source.line("view = buffer if type(buffer) is memoryview else memoryview(buffer)")
        else:
            with self.source.block("if type(buffer) is not bytes:"):
                self.source.line("buffer = bytes(buffer)")

    def _malformed(self, cause: object) -> ProtocolError:
        return ProtocolError(f"{self.title}: {cause}")

    # A run of values of fixed size, read by one call.

    def fixed(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def flush(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        code = "".join(part for part, _ in run)
        targets = ", ".join(target for _, target in run)
        if code == "B":
            self.source.line(f"{targets} = buffer[pos]")
            self.source.line("pos += 1")
            return
        layout = packer(code)
        unpack = self.source.constant("unpack", layout.unpack_from)
        self.source.line(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(buffer, pos)")
        self.source.line(f"pos += {layout.size}")

    # Structs and their fields.

    def struct(self, struct_type: type[Struct]) -> str:
        """Read a struct into a new local variable; returns its name."""
        made = self.source.constant("Blank", blank_type(struct_type))
        target = self.source.name("o")
        self.source.line(f"{target} = {made}()")
        for name, row in struct_type.__fields__.items():
            if row.tag >= 0 or not row.is_in(self.version):
                self.default(f"{target}.{name}", row)
        for name, row in fields_in(struct_type, self.version):
            self.value(f"{target}.{name}", name, row)
        if self.flexible:
            self.tags(target, struct_type)
        return target

    def default(self, target: str, row: Field) -> None:
        value = "[]" if row.default is EMPTY else self.source.constant("default", row.default)
        self.source.line(f"{target} = {value}")

    def value(self, target: str, name: str, row: Field) -> None:
        nullable = row.is_nullable_in(self.version)
        wire = row.wire
        if isinstance(wire, Array):
            self.array(target, name, wire.element, nullable)
        elif isinstance(wire, Primitive) and wire.code:
            self.fixed(wire.code, target)
        elif isinstance(wire, Primitive):
            self.sized(target, name, wire, nullable, self.flexible and row.compact)
        elif nullable:
            self.optional_struct(target, wire)
        else:
            self.source.line(f"{target} = {self.nested(wire)}")

    def nested(self, struct_type: type[Struct]) -> str:
        self.flush()
        made = self.struct(struct_type)
        self.flush()
        return made

    def optional_struct(self, target: str, struct_type: type[Struct]) -> None:
        present = self.source.name("n")
        self.fixed("b", present)
        self.flush()
        with self.source.block(f"if {present} < 0:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self.source.line(f"{target} = {self.nested(struct_type)}")

    # Lengths.

    def length(self, compact: bool, code: str) -> str:
        """Read a length or count; the variable is negative for null."""
        length = self.source.name("n")
        self.fixed("B" if compact else code, length)
        self.flush()
        if compact:
            with self.source.block(f"if {length} > 127:"):
                self.source.line(f"{length}, pos = rest(buffer, pos, {length})")
            self.source.line(f"{length} -= 1")
        return length

    def null(self, length: str, target: str, name: str, nullable: bool) -> None:
        with self.source.block(f"if {length} < 0:"):
            if nullable:
                self.source.line(f"{target} = None")
            else:
                self.source.line(f"raise malformed('{name} is null')")

    def sized(self, target: str, name: str, wire: Primitive, nullable: bool, compact: bool) -> None:
        length = self.length(compact, "h" if wire is STRING else "i")
        self.null(length, target, name, nullable)
        with self.source.block("else:"):
            stop = self.source.name("stop")
            self.source.line(f"{stop} = pos + {length}")
            self.source.line(f"{target} = {self.slice(wire, 'pos', stop)}")
            self.source.line(f"pos = {stop}")

    def slice(self, wire: Primitive, start: str, stop: str) -> str:
        if wire is RECORDS:
            return f"view[{start}:{stop}]"
        if wire is STRING:
            piece = f"buffer[{start}:{stop}]"
            return f"str({piece}, 'utf-8')" if self.has_records else f"{piece}.decode()"
        return f"bytes(buffer[{start}:{stop}])" if self.has_records else f"buffer[{start}:{stop}]"

    # Arrays.

    def array(self, target: str, name: str, element: Primitive | type[Struct], nullable: bool) -> None:
        count = self.length(self.flexible, "i")
        self.null(count, target, name, nullable)
        with self.source.block("else:"):
            size = smallest(element, self.version, self.flexible)
            needed = count if size == 1 else f"{count} * {size}"
            with self.source.block(f"if {needed} > end - pos:"):
                self.source.line(f"raise malformed('more {name} than there are bytes for')")
            self.charge(count)
            if isinstance(element, Primitive) and element.code:
                self.numbers(target, element, count)
            else:
                self.items(target, name, element, count)

    def charge(self, count: str) -> None:
        """Count elements before the first is made."""
        self.source.line(f"left -= {count}")
        with self.source.block("if left < 0:"):
            self.source.line("raise TooManyElements")

    def numbers(self, target: str, element: Primitive, count: str) -> None:
        stop = self.source.name("stop")
        self.source.line(f"{stop} = pos + {count} * {element.size}")
        if element is UUID:
            piece = self.slice(BYTES, "at", "at + 16")
            self.source.line(f"{target} = [{piece} for at in range(pos, {stop}, 16)]")
        else:
            layout = f"f'>{{{count}}}{element.code}'"
            self.source.line(f"{target} = list(unpack_from({layout}, buffer, pos))")
        self.source.line(f"pos = {stop}")

    def items(self, target: str, name: str, element: Primitive | type[Struct], count: str) -> None:
        items = self.source.name("items")
        self.source.line(f"{target} = {items} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, Primitive):
                item = self.source.name("item")
                self.sized(item, name, element, False, self.flexible)
            else:
                item = self.nested(element)
            self.source.line(f"{items}.append({item})")
            if self.in_steps:
                self.source.line("due -= 1")
                with self.source.block("if not due:"):
                    self.source.line(f"due = {ELEMENTS_BETWEEN_STEPS}")
                    self.source.line("yield")

    # Tagged fields.

    def tags(self, target: str, struct_type: type[Struct]) -> None:
        count = self.source.name("n")
        self.fixed("B", count)
        self.flush()
        known = tagged_in(struct_type, self.version)
        with self.source.block(f"if {count}:"):
            if known:
                self.known_tags(target, known)
            else:
                self.source.line(f"{count}, pos = skip_tags(buffer, pos - 1)")
                self.charge(count)

    def known_tags(self, target: str, known: list[tuple[str, Field]]) -> None:
        count, tag, stop = (self.source.name(stem) for stem in ("n", "tag", "stop"))
        self.source.line(f"{count}, pos = tag_count(buffer, pos - 1)")
        self.charge(count)
        with self.source.block(f"for _ in range({count}):"):
            self.source.line(f"{tag}, pos = varint(buffer, pos)")
            self.source.line(f"{stop}, pos = varint(buffer, pos)")
            self.source.line(f"{stop} += pos")
            for keyword, (name, row) in zip(["if"] + ["elif"] * len(known), known, strict=False):
                with self.source.block(f"{keyword} {tag} == {row.tag}:"):
                    self.value(f"{target}.{name}", name, row)
                    self.flush()
            with self.source.block("else:"):
                self.source.line(f"pos = {stop}")
            with self.source.block(f"if pos != {stop}:"):
                self.source.line(f"raise malformed(f'tagged field {{{tag}}} has another size than it says')")


def blank_type(struct_type: type[Struct]) -> type[Struct]:
    """A subclass whose objects start without values: half the time of a call with arguments (measured, 3.11)."""
    body = {"__slots__": (), "__module__": struct_type.__module__, "__init__": object.__init__}
    return cast(type[Struct], type.__new__(StructType, struct_type.__name__, (struct_type,), body))


def _has_records(struct_type: type[Struct], version: int) -> bool:
    return any(_holds_records(row.wire, version) for row in struct_type.__fields__.values() if row.is_in(version))


def _holds_records(wire: WireType, version: int) -> bool:
    element = wire.element if isinstance(wire, Array) else wire
    return element is RECORDS if isinstance(element, Primitive) else _has_records(element, version)
