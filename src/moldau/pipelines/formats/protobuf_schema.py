"""The text of a .proto file, as a registry keeps it, to message types, and messages by their places in a file.

The compiler is protoc of grpcio-tools, with Google's well-known types and those of its `google/type` package.
"""

import base64
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor  # type: ignore[import-untyped]  # no type information

MAIN = "moldau_main.proto"
"""Name of the file that has no name: the files that it imports have theirs."""
PACKED = re.compile(r"[A-Za-z0-9+/=]+")
"""Form that Confluent's client for Python registers: a descriptor in base64. Some registries give it back so."""


class NotCompiled(Exception):
    """Error: protoc does not take a schema."""


def compiled(text: str, references: tuple[tuple[str, str], ...]) -> "FileDescriptor":
    """The compiled file, in a pool of its own: two versions of a schema have messages of the same names."""
    from google.protobuf import descriptor_pb2, descriptor_pool  # type: ignore[import-untyped]  # no type information

    files = descriptor_pb2.FileDescriptorSet.FromString(_descriptors(text, references))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool.FindFileByName(MAIN)


def _descriptors(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    import grpc_tools  # type: ignore[import-untyped]  # no type information
    from grpc_tools import protoc

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="moldau-proto-") as directory:
        paths = [f"-I{directory}", f"-I{well_known}", *(f"-I{path}" for path in _google_types())]
        known = Path(directory, "known.descriptors")
        known.write_bytes(_written(Path(directory), ((MAIN, text), *references)))
        out = Path(directory, "all.descriptors")
        outcome = [f"--descriptor_set_in={known}", "--include_imports", f"--descriptor_set_out={out}"]
        if protoc.main(["protoc", *paths, *outcome, MAIN]) != 0:
            raise NotCompiled("protoc does not compile the schema; its words are on standard error")
        return out.read_bytes()


def _written(directory: Path, files: tuple[tuple[str, str], ...]) -> bytes:
    """Write the files that are text into the directory; returns the others as a set of descriptors."""
    from google.protobuf import descriptor_pb2

    others = descriptor_pb2.FileDescriptorSet()
    for name, words in files:
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise NotCompiled(f"the reference {name!r} leads out of its directory")
        if PACKED.fullmatch(words):
            others.file.add().ParseFromString(base64.b64decode(words))
            others.file[-1].name = name
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(words, encoding="utf-8")
    return bytes(others.SerializeToString())


def _google_types() -> Iterator[Path]:
    """Directories of googleapis-common-protos, if it is installed: its `google/type` has dates and amounts of money."""
    import google.protobuf  # type: ignore[import-untyped]  # no type information

    for directory in google.protobuf.__path__:
        if Path(directory).parent.joinpath("type", "date.proto").exists():
            yield Path(directory).parent.parent


def message_at(file: "FileDescriptor", place: tuple[int, ...]) -> "Descriptor | None":
    """The message at a place: (0, 2) is the third message inside the first of the file."""
    inside: list[Any] = list(file.message_types_by_name.values())
    found = None
    for number in place:
        if not 0 <= number < len(inside):
            return None
        found = inside[number]
        inside = list(found.nested_types)
    return found


def place_of(message: "Descriptor") -> tuple[int, ...]:
    owner = message.containing_type
    siblings = owner.nested_types if owner else list(message.file.message_types_by_name.values())
    number = [sibling.full_name for sibling in siblings].index(message.full_name)
    return (*place_of(owner), number) if owner else (number,)


def all_messages(file: "FileDescriptor") -> "list[Descriptor]":
    """All messages of a file, also those inside others, but not the entries of maps."""
    found: list[Descriptor] = []
    waiting: list[Any] = list(file.message_types_by_name.values())
    while waiting:
        message = waiting.pop(0)
        if not message.GetOptions().map_entry:
            found.append(message)
            waiting.extend(message.nested_types)
    return found
