"""Division of an Iceberg table into partitions: `day`, or by one of Iceberg's transforms, such as `day(at)`."""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from moldau.pipelines.file.options import text

PACKAGE = "pyiceberg_core"
"""Package with which pyiceberg computes transforms; it is not needed for columns as they are."""
TIMES = ("year", "month", "day", "hour")
NUMBERED = ("bucket", "truncate")


class Partition(NamedTuple):
    """One column of the division; `transform` is empty for the column as it is."""

    column: str
    transform: str = ""
    number: int = 0

    @property
    def name(self) -> str:
        return f"{self.column}_{self.transform}" if self.transform else self.column


def partitions(value: Any) -> tuple[Partition, ...]:
    """Partitions of a list of texts, or of one text with commas."""
    items = re.split(r",(?![^(]*\))", value) if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        raise ValueError("a column or a list of columns")
    return tuple(_partition(item) for item in items)


def _partition(item: Any) -> Partition:
    written = text(item).strip()
    if "(" not in written:
        return Partition(written)
    time = re.fullmatch(r"(year|month|day|hour)s?\(\s*([^,()]+?)\s*\)", written)
    if time is not None:
        return Partition(time[2], time[1])
    numbered = re.fullmatch(r"(bucket|truncate)\(\s*(\d+)\s*,\s*([^,()]+?)\s*\)", written)
    if numbered is None or int(numbered[2]) == 0:
        raise ValueError("a column, day(at), bucket(16, id) or the like")
    return Partition(numbered[3], numbered[1], int(numbered[2]))


def lacks_package(divided: tuple[Partition, ...]) -> bool:
    return any(each.transform for each in divided) and find_spec(PACKAGE) is None


def fields(divided: tuple[Partition, ...]) -> Iterator[tuple[str, Any, str]]:
    """Arguments for pyiceberg's `add_field`: column, transform, name."""
    from pyiceberg.transforms import parse_transform

    for each in divided:
        number = f"[{each.number}]" if each.number else ""
        yield each.column, parse_transform(f"{each.transform or 'identity'}{number}"), each.name
