"""Dead letters of files: they go back as a new file beside the one that they were in.

The law: a file appears as a whole, under a name that no file had, in the directory of the source and nowhere else,
whatever a letter says that it came from.
"""

import bz2
import fnmatch
import gzip
import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.formats import ddl
from moldau.pipelines.formats.csv_records import NOT_IN_ORDER, UNDECODED
from moldau.pipelines.sources.files import WILD, path_of

PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress}
UNPACKABLE = (".zst", ".lz4", ".snappy", ".deflate", ".xz")


def directory(address: str) -> Path:
    """The directory of a file on this machine."""
    return _local(address).parent


def refusal(source: SourceSpec | None, address: str, reason: str) -> str | None:
    """Words that say why a letter from the file at `address` cannot go back; None if it can."""
    if source is None or source.kind != "files":
        return f"the pipeline has no source of files that reads {address}"
    file, where = _local(address), path_of(source)
    if urlsplit(address).scheme not in ("", "file") or "://" in where:
        return f"{address} is not on this machine"
    if source.options.get("header") and re.search(NOT_IN_ORDER, reason):
        return f"its fields could not be told apart: mend {file}, and give it a new name"
    if not (file.parent.is_dir() and file.parent.resolve().is_relative_to(_plain(where))):
        return f"{file.parent} is not in the directory of source {source.name!r}"
    if file.suffix in UNPACKABLE or not _matches(_new_name(file), where):
        return f"{where} would not take a file beside {file}"
    return None


def put_back(source: SourceSpec, address: str, values: Sequence[bytes]) -> None:
    """Write the records as a new file of the source. Durable on return; raises OSError, or UnicodeError if the file's
    encoding does not have a letter of the text."""
    file = _local(address)
    target = file.with_name(_new_name(file))
    content = PACKED.get(file.suffix, bytes)(_content(source, values))
    hidden = target.with_name(f".{target.name}.new")  # Spark passes over names that begin with a dot
    with hidden.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    hidden.replace(target)


def _content(source: SourceSpec, values: Iterable[bytes]) -> bytes:
    lines = [value.decode("utf-8", UNDECODED) for value in values]
    if source.options.get("header"):  # bad records have their fields in the schema's order
        names = [field.name for field in ddl.fields(source.options["schema"])]
        lines.insert(0, source.options["separator"].join(names))
    text = "".join(f"{line}\n" for line in lines)
    return text.encode(source.options.get("encoding") or "utf-8", UNDECODED)


def _local(address: str) -> Path:
    """The path in Spark's address of a file."""
    return Path(unquote(urlsplit(address).path))


def _new_name(file: Path) -> str:
    name, dot, endings = file.name.partition(".")
    return f"{name}.redriven-{uuid.uuid4().hex[:12]}{dot}{endings}"


def _plain(where: str) -> Path:
    """The directory before the first sign of a pattern."""
    path = Path(*takewhile(lambda part: not set(part) & set(WILD), Path(where).parts))
    return (path.parent if path.is_file() else path).resolve()


def _matches(name: str, where: str) -> bool:
    """Whether a pattern takes a file of the name; Hadoop's braces are not looked into."""
    last = Path(where).name
    return not set(last) & set(WILD) or "{" in last or fnmatch.fnmatchcase(name, last)
