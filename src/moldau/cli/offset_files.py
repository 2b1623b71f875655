"""Files of committed offsets: JSON, CSV of kafka-consumer-groups.sh, and the lines of ExportZkOffsets (Kafka 0.8)."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.cli.failures import ToolError
from moldau.cli.partition_queries import Partition

FORMATS = ("json", "csv", "zookeeper")
STANDARD = "-"
"""The name of standard input and output."""
FILE_BYTES_MAX = 256 * 1024 * 1024
OFFSET_MAX = (1 << 63) - 1
PARTITION_MAX = (1 << 31) - 1


class Line(NamedTuple):
    """An offset of a group in a file."""

    group: str | None
    """None where the file leaves it to the command line."""
    topic: str
    partition: int
    offset: int


def read_text(path: str) -> str:
    """Content of a text file, or of standard input."""
    try:
        if path == STANDARD:
            return sys.stdin.read(FILE_BYTES_MAX)
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def write_text(path: str, text: str) -> None:
    """Write a text file, or to standard output."""
    if path == STANDARD:
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text)
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror or error}") from error


def written(lines: Sequence[Line], form: str, with_group: bool) -> str:
    """The lines in a form; CSV has the group only where there are several, as Kafka's tool."""
    if form == "json":
        rows = [each._asdict() for each in lines]
        return json.dumps({"version": 1, "offsets": rows}, indent=2) + "\n"
    if form == "zookeeper":
        return "".join(f"/consumers/{e.group}/offsets/{e.topic}/{e.partition}:{e.offset}\n" for e in lines)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(each if with_group else each[1:] for each in lines)
    return text.getvalue()


def parsed(text: str, path: str) -> list[Line]:
    """The lines of a file in any of the forms, which is seen from its first character; ToolError names a bad line."""
    start = text.lstrip()[:1]
    if start == "{":
        return _parsed_json(text, path)
    if start == "/":
        return [_zookeeper_line(line, number, path) for number, line in _numbered(text)]
    return _parsed_csv(text, path)


def _numbered(text: str) -> Iterable[tuple[int, str]]:
    return ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip())


def _parsed_json(text: str, path: str) -> list[Line]:
    try:
        rows = json.loads(text)["offsets"]
        return [
            _line(each.get("group"), each["topic"], each["partition"], each["offset"], f"{path}: offset {number}")
            for number, each in enumerate(rows, 1)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ToolError(f"{path} is not a JSON file of `moldau offsets export`: {error!r:.100}") from error


def _parsed_csv(text: str, path: str) -> list[Line]:
    found = []
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
            if not any(cell.strip() for cell in cells):
                continue
            where = f"{path}: line {number}"
            if len(cells) not in (3, 4):
                raise ToolError(f"{where} is neither TOPIC,PARTITION,OFFSET nor GROUP,TOPIC,PARTITION,OFFSET")
            *group, topic, partition, offset = (cell.strip() for cell in cells)
            found.append(_line(group[0] if group else None, topic, partition, offset, where))
    except csv.Error as error:
        raise ToolError(f"{path} is not CSV: {error}") from error
    return found


def _zookeeper_line(line: str, number: int, path: str) -> Line:
    where = f"{path}: line {number}"
    node, _, offset = line.rpartition(":")
    parts = node.split("/")
    if len(parts) != 6 or parts[1] != "consumers" or parts[3] != "offsets":
        raise ToolError(f"{where} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET")
    # Kafka 0.8 wrote BROKER-PARTITION where later versions write PARTITION.
    return _line(parts[2], parts[4], parts[5].rpartition("-")[2], offset, where)


def _line(group: object, topic: object, partition: object, offset: object, where: str) -> Line:
    if not isinstance(topic, str) or not topic or not (group is None or (isinstance(group, str) and group)):
        raise ToolError(f"{where} names no topic or no group")
    return Line(group, topic, _number(partition, PARTITION_MAX, where), _number(offset, OFFSET_MAX, where))


def _number(value: object, highest: int, where: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or len(text) > 19 or int(text) > highest:
        raise ToolError(f"{where}: {text!r:.40} is not a whole number from 0 to {highest}")
    return int(text)


def by_group(lines: Iterable[Line], groups: Sequence[str]) -> dict[str, dict[Partition, int]]:
    """Offsets by group. Lines that name no group belong to the one of the command line; groups there choose."""
    found: dict[str, dict[Partition, int]] = {}
    for each in lines:
        if each.group is None and len(groups) != 1:
            raise ToolError("the file names no groups: name one with --group")
        group = each.group or groups[0]
        if groups and group not in groups:
            continue
        found.setdefault(group, {})[each.topic, each.partition] = each.offset
    return found


def lines_of(offsets: Mapping[str, Mapping[Partition, int]]) -> list[Line]:
    """The lines of a file with these offsets by group."""
    return [
        Line(group, topic, partition, offset)
        for group, of_group in offsets.items()
        for (topic, partition), offset in of_group.items()
    ]
