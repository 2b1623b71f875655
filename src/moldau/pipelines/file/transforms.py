"""Transforms as they are written: a list of small changes of rows, an option of every source and sink."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.pipelines.file.options import Option, mapping, names, text
from moldau.pipelines.file.problems import near
from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.formats import ddl

DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True)
class Transform:
    """One change: its name, and what it is told."""

    name: str
    given: Any


def _types(value: Any) -> dict[str, str]:
    """The type of each column, in Spark's words."""
    given = mapping(value)
    for kind in given.values():
        try:
            ddl.fields(f"it {kind}")
        except ValueError as error:
            raise ValueError(f"columns with types of Spark's ({error})") from None
    return given


def _masks(value: Any) -> dict[str, str | None]:
    """The text that each masked column gets; None: what is empty for its type."""
    if isinstance(value, Mapping):
        return dict(mapping(value))
    return dict.fromkeys(names(value))


PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "unwrap": text,
    "rename": mapping,
    "drop": names,
    "cast": _types,
    "mask": _masks,
    "header": mapping,
}


def transforms(value: Any) -> tuple[Transform, ...]:
    """The transforms of a list like `[{rename: {usr: user}}, {drop: [ip]}]`."""
    items = [value] if isinstance(value, Mapping) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, Mapping) and item for item in items):
        raise ValueError("a list of transforms, such as [{rename: {usr: user}}, {drop: [ip]}]")
    return tuple(_transform(str(name), given) for item in items for name, given in item.items())


def _transform(name: str, given: Any) -> Transform:
    parse = PARSERS.get(name)
    if parse is None:
        hint = near(name, PARSERS) or f"there are: {', '.join(PARSERS)}"
        raise ValueError(f"a list of transforms, and there is no {name!r} ({hint})")
    try:
        return Transform(name, parse(given))
    except ValueError as error:
        raise ValueError(f"a list of transforms, and {name!r} of them {error}") from None


OPTION = Option(
    "transforms",
    transforms,
    "changes of each row, one after another: a list of `unwrap`, `rename`, `drop`, `cast`, `mask`, `header`",
    default=(),
)


def drops_tombstones(source: SourceSpec) -> bool:
    """Whether records without value are left out: Debezium sends one after each deletion, which its envelope has told
    already."""
    return Transform("unwrap", DEBEZIUM) in (source.options.get(OPTION.name) or ())
