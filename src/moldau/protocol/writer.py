"""Generator of the function that writes one version of a message.

That function collects pieces in a list: neighbouring fields of fixed size are one `pack`, everything up to the next
loop or branch is one `+=`. At a records field the pieces so far become a chunk and the records the next one, uncopied.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from moldau.protocol.errors import TooManyElements
from moldau.protocol.schema import EMPTY, RECORDS, STRING, UUID, Array, Field, Message, Primitive, Struct
from moldau.protocol.source import ELEMENTS_BETWEEN_STEPS, Source, fields_in, packer, tagged_in, write_varint

SIZES: Final = (*(bytes([value]) for value in range(1, 128)), b"\0")
"""Lengths 0 to 126 as compact ones, which are one more; null is length -1, the last of them."""


def generate(message_type: type[Message], version: int, *, in_steps: bool = False) -> Callable[..., Any]:
    """A function of (message, pieces, chunks, elements_max) that returns the pieces after the last chunk; `in_steps`, a
    generator that yields now and then and returns the same."""
    return _Writer(message_type, version, in_steps).generate()


class _Writer:
    def __init__(self, message_type: type[Message], version: int, in_steps: bool) -> None:
        self.message_type = message_type
        self.version = version
        self.in_steps = in_steps
        self.flexible = message_type.flexible is not None and version >= message_type.flexible
        self.out = "out"
        scope = {
            "sizes": SIZES,
            "varint": write_varint,
            "pack": struct.pack,
            "unsupported": self._unsupported,
            "TooManyElements": TooManyElements,
        }
        self.source = Source(scope)
        self._run: list[tuple[str, str]] = []
        self._pieces: list[str] = []

    def generate(self) -> Callable[..., Any]:
        with self.source.block("def write(message, out, chunks, left):"):
            if self.in_steps:
                self.source.line(f"due, joined = {ELEMENTS_BETWEEN_STEPS}, 0")
                self.source.line("yield")
            self.struct("message", self.message_type)
            self.flush()
            self.source.line("return out")
        return self.source.compile("write", f"write {self.message_type.__name__} v{self.version}")

    def _unsupported(self, name: str, value: object) -> ValueError:
        return ValueError(f"{self.message_type.__name__} v{self.version} has no {name}, but it is {value!r}")

    # Pieces.

    def fixed(self, code: str, expression: str = "") -> None:
        """Write a value of fixed size; `x` packs a zero byte and takes no value."""
        self._run.append((code, expression))

    def piece(self, expression: str) -> None:
        self._end_run()
        self._pieces.append(expression)

    def _end_run(self) -> None:
        run, self._run = self._run, []
        if all(code == "x" for code, _ in run):
            self._pieces += [repr(b"\0" * len(run))] if run else []
        else:
            pack = self.source.constant("pack", packer("".join(code for code, _ in run)).pack)
            self._pieces.append(f"{pack}({', '.join(expression for _, expression in run if expression)})")

    def flush(self) -> None:
        self._end_run()
        pieces, self._pieces = self._pieces, []
        if len(pieces) == 1:
            self.source.line(f"{self.out}.append({pieces[0]})")
        elif pieces:
            self.source.line(f"{self.out} += ({', '.join(pieces)})")

    # Structs and their fields.

    def struct(self, value: str, struct_type: type[Struct]) -> None:
        for name, row in struct_type.__fields__.items():
            if not row.is_in(self.version) and not row.ignorable:
                self.refuse(f"{value}.{name}", name, row)
        for name, row in fields_in(struct_type, self.version):
            self.value(f"{value}.{name}", row)
        if self.flexible:
            self.tags(value, struct_type)

    def refuse(self, value: str, name: str, row: Field) -> None:
        with self.source.block(f"if not ({self.is_default(value, row)}):"):
            self.source.line(f"raise unsupported({name!r}, {value})")

    def is_default(self, value: str, row: Field) -> str:
        default = row.default
        if default is None:
            return f"{value} is None"
        if default is EMPTY:
            return f"{value} == []" if row.nullable != "none" else f"not {value}"
        constant = self.source.constant("default", default)
        if isinstance(default, Struct):
            return f"{value} is {constant} or {value} == {constant}"
        return f"{value} == {constant}"

    def value(self, value: str, row: Field) -> None:
        nullable = row.is_nullable_in(self.version)
        wire = row.wire
        if isinstance(wire, Array):
            self.array(value, wire.element, nullable)
        elif isinstance(wire, Primitive) and wire.code:
            self.fixed(wire.code, value)
        elif wire is RECORDS:
            self.records(value, nullable)
        elif isinstance(wire, Primitive):
            self.sized(value, wire, nullable, self.flexible and row.compact)
        elif nullable:
            self.optional_struct(value, wire)
        else:
            self.nested(value, wire)

    def nested(self, value: str, struct_type: type[Struct]) -> None:
        inner = self.source.name("o")
        self.source.line(f"{inner} = {value}")
        self.struct(inner, struct_type)

    def optional_struct(self, value: str, struct_type: type[Struct]) -> None:
        self.flush()
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{self.out}.append(b'\\xff')")
        with self.source.block("else:"):
            self.fixed("b", "1")
            self.nested(value, struct_type)
            self.flush()

    # Lengths.

    def length(self, length: str, compact: bool, code: str) -> None:
        """Write a length: `length` is a variable, negative for null."""
        if compact:
            self.piece(f"sizes[{length}] if {length} < 127 else varint({length} + 1)")
        else:
            self.fixed(code, length)

    def sized(self, value: str, wire: Primitive, nullable: bool, compact: bool) -> None:
        data, length = self.source.name("data"), self.source.name("n")
        self.source.line(f"{data} = {value}")
        if nullable:
            with self.source.block(f"if {data} is None:"):
                self.source.line(f"{data} = b''")
                self.source.line(f"{length} = -1")
            with self.source.block("else:"):
                self.measure(data, length, wire)
        else:
            self.measure(data, length, wire)
        self.length(length, compact, "h" if wire is STRING else "i")
        self.piece(data)

    def measure(self, data: str, length: str, wire: Primitive) -> None:
        if wire is STRING:
            self.source.line(f"{data} = {data}.encode()")
        self.source.line(f"{length} = len({data})")

    def records(self, value: str, nullable: bool) -> None:
        data, length = self.source.name("data"), self.source.name("n")
        self.source.line(f"{data} = {value}")
        null = f"-1 if {data} is None else " if nullable else ""
        self.source.line(f"{length} = {null}len({data})")
        self.length(length, self.flexible, "i")
        self.flush()
        with self.source.block(f"if {length} > 0:"):
            self.source.line("chunks.append(b''.join(out))")
            self.source.line(f"chunks.append({data})")
            self.source.line("out = []")
            if self.in_steps:
                self.source.line("joined = 0")

    # Arrays.

    def array(self, value: str, element: Primitive | type[Struct], nullable: bool) -> None:
        items, count = self.source.name("items"), self.source.name("n")
        self.source.line(f"{items} = {value}")
        if nullable:
            with self.source.block(f"if {items} is None:"):
                self.source.line(f"{items} = ()")
                self.source.line(f"{count} = -1")
            with self.source.block("else:"):
                self.source.line(f"{count} = len({items})")
        else:
            self.source.line(f"{count} = len({items})")
        self.length(count, self.flexible, "i")
        self.source.line(f"left -= {count}")
        with self.source.block("if left < 0:"):
            self.source.line("raise TooManyElements")
        self.elements(items, element)

    def elements(self, items: str, element: Primitive | type[Struct]) -> None:
        if element is UUID:
            self.piece(f"b''.join({items})")
        elif isinstance(element, Primitive) and element.code:
            self.piece(f"pack(f'>{{len({items})}}{element.code}', *{items})")
        else:
            self.flush()
            item = self.source.name("item")
            with self.source.block(f"for {item} in {items}:"):
                if isinstance(element, Primitive):
                    self.sized(item, element, False, self.flexible)
                else:
                    self.struct(item, element)
                self.flush()
                if self.in_steps:
                    self.step()

    def step(self) -> None:
        """Give way now and then; the small pieces become one on the way, which takes a fifth of their memory."""
        self.source.line("due -= 1")
        with self.source.block("if not due:"):
            self.source.line(f"due = {ELEMENTS_BETWEEN_STEPS}")
            if self.out == "out":
                self.source.line("out[joined:] = [b''.join(out[joined:])]")
                self.source.line("joined += 1")
            self.source.line("yield")

    # Tagged fields: only those that differ from their default are sent.

    def tags(self, value: str, struct_type: type[Struct]) -> None:
        known = tagged_in(struct_type, self.version)
        if not known:
            self.fixed("x")
            return
        self.flush()
        defaults = " and ".join(f"({self.is_default(f'{value}.{name}', row)})" for name, row in known)
        with self.source.block(f"if {defaults}:"):
            self.source.line(f"{self.out}.append(b'\\0')")
        with self.source.block("else:"):
            self.present_tags(value, known)

    def present_tags(self, value: str, known: list[tuple[str, Field]]) -> None:
        count, tagged, body = (self.source.name(stem) for stem in ("n", "tagged", "body"))
        self.source.line(f"{count} = 0")
        self.source.line(f"{tagged} = []")
        for name, row in known:
            with self.source.block(f"if not ({self.is_default(f'{value}.{name}', row)}):"):
                self.source.line(f"{count} += 1")
                self.source.line(f"{body} = []")
                self.redirected(body, f"{value}.{name}", row)
                self.source.line(f"{body} = b''.join({body})")
                tag = write_varint(row.tag)
                self.source.line(f"{tagged} += ({tag!r}, varint(len({body})), {body})")
        self.source.line(f"{self.out}.append(varint({count}))")
        self.source.line(f"{self.out} += {tagged}")

    def redirected(self, out: str, value: str, row: Field) -> None:
        """Write a value to another list than the message's."""
        outer, self.out = self.out, out
        self.value(value, row)
        self.flush()
        self.out = outer
