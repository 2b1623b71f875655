"""Options of sources, sinks and formats, declared as data: check, defaults and documentation come from here."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.pipelines.file.problems import Place, Problem, near, suggestion

DELAY = re.compile(
    r"(interval\s+)?(\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week|month)s?\s*)+", re.IGNORECASE
)
"""An interval of Spark's, as far as a watermark takes it."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and its place."""

    value: Any
    place: Place


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option. `parse` returns the value to use, or raises ValueError with words that follow "must
    be"."""

    name: str
    parse: Callable[[Any], Any]
    doc: str
    required: bool = False
    default: Any = None


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number, 0 or more")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def names(value: Any) -> tuple[str, ...]:
    """A list of names; one name alone will do, and so does a text with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if (
        not isinstance(items, list | tuple)
        or not items
        or not all(isinstance(item, str) and item.strip() for item in items)
    ):
        raise ValueError("a name or a list of names")
    found = tuple(item.strip() for item in items)
    if len(set(found)) < len(found):
        raise ValueError("names, each once")
    return found


def mapping(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("names with values")
    for name, item in value.items():
        if item is None or isinstance(item, Mapping | list):
            raise ValueError(
                f"names with one value each, and {str(name)!r} has {'none' if item is None else 'several'}"
            )
    return {str(name): _property(item) for name, item in value.items()}


def _property(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else str(item)


def watermark(value: Any) -> tuple[str, str]:
    """The column and Spark's interval of a text like `at 1 day`."""
    column, _, delay = text(value).strip().partition(" ")
    if not DELAY.fullmatch(delay.strip()):
        raise ValueError("a column and a time, such as `at 1 day`")
    return column, delay.strip()


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of one of a few words; an object, so that the documentation can list them."""

    allowed: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        if value not in self.allowed:
            raise ValueError(f"one of {', '.join(self.allowed)}")
        return str(value)


def choice(*allowed: str) -> Choice:
    return Choice(allowed)


def parse_options(
    owner: str, declared: tuple[Option, ...], given: Mapping[str, Given], place: Place
) -> tuple[dict[str, Any], list[Problem]]:
    """Every declared option with its value or default, and the problems of the given ones.

    `owner` begins each message, such as "source 'visits'".
    """
    known = {option.name: option for option in declared}
    values = {option.name: option.default for option in declared}
    problems = list(_unknown(owner, known, given))
    for name, option in known.items():
        if name not in given:
            if option.required:
                problems.append(Problem(place, f"{owner} needs {name!r}: {option.doc}"))
            continue
        try:
            values[name] = option.parse(given[name].value)
        except ValueError as error:
            problems.append(_refused(owner, option, given[name], str(error)))
    return values, problems


def _refused(owner: str, option: Option, item: Given, expected: str) -> Problem:
    shown = "empty" if item.value is None else repr(item.value)
    hint = near(str(item.value), option.parse.allowed) if isinstance(option.parse, Choice) else ""
    return Problem(item.place, f"{owner}: {option.name!r} must be {expected}, not {shown}", hint)


def _unknown(owner: str, known: Mapping[str, Option], given: Mapping[str, Given]) -> Iterator[Problem]:
    for name, item in given.items():
        if name not in known:
            yield Problem(item.place, f"{owner} has no option {name!r}", suggestion(name, known))
