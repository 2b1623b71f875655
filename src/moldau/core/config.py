"""Configuration properties: name, type, default and rule of each, and the text forms of values.

Values travel as text everywhere (properties files, DescribeConfigs, the metadata store), so a `ConfigKey` keeps its
default as text too; `parse_value` gives the typed value and names the property when it refuses one.
"""

import re
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from moldau.core.properties import parse_properties as parse_properties

Value = bool | int | float | str | tuple[str, ...]
Check = Callable[[Value], str | None]
"""Function that returns the reason why a value is wrong, or None."""

LONG_MAX = 2**63 - 1

LIST_ITEMS_MAX = 10_000
"""Items of a list: a few milliseconds. A megabyte of commas would hold the event loop for seconds."""
TEXT_SHOWN_MAX = 80
"""Characters of a bad value that its error repeats."""


class ConfigType(IntEnum):
    """DescribeConfigs' numbers (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Source of a value: DescribeConfigs' numbers (KIP-226), of which a smaller one of 1-5 wins over a larger one."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class UpdateMode(IntEnum):
    """Scope in which a property may change while the broker runs (KIP-226)."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class ConfigError(ValueError):
    """Error: a property cannot be accepted; `name` says which, the text says why."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class ConfigKey(NamedTuple):
    """One property. `default` is text; None means that there is no value unless one is set."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check | None = None
    mode: UpdateMode = UpdateMode.READ_ONLY

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD


class ConfigSynonym(NamedTuple):
    """One place that has a value for a property, and the value there."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A property as DescribeConfigs shows it; `synonyms` are in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    doc: str | None


def at_least(low: float) -> Check:
    def check(value: Value) -> str | None:
        return None if isinstance(value, int | float) and value >= low else f"must be at least {low}"

    return check


def between(low: float, high: float) -> Check:
    def check(value: Value) -> str | None:
        return None if isinstance(value, int | float) and low <= value <= high else f"must be in {low}..{high}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: Value) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def list_of(*allowed: str) -> Check:
    def check(value: Value) -> str | None:
        bad = [item for item in value if item not in allowed] if isinstance(value, tuple) else [value]
        return f"may only hold {', '.join(allowed)}" if bad else None

    return check


def not_empty(value: Value) -> str | None:
    return None if value not in ("", ()) else "must not be empty"


_INTEGER = re.compile(r"[+-]?[0-9]+")
_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_TEXT_TYPES = frozenset({ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD, ConfigType.UNKNOWN})


def parse_value(key: ConfigKey, text: str) -> Value:
    """The typed value of `text`, checked; raises ConfigError."""
    value = _convert(key, text)
    problem = key.check(value) if key.check else None
    if problem:
        raise ConfigError(key.name, f"{shown(text)} {problem}")
    return value


def shown(text: str) -> str:
    """The text in quotes, as errors repeat it: what a client sends may be a megabyte."""
    return repr(text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "...")


def _convert(key: ConfigKey, text: str) -> Value:
    if key.type is ConfigType.PASSWORD:
        return text
    text = text.strip()
    if key.type in _TEXT_TYPES:
        return text
    if key.type is ConfigType.LIST:
        return items_of(key.name, text)
    if key.type is ConfigType.BOOLEAN:
        return _boolean(key, text)
    if key.type is ConfigType.DOUBLE:
        return _double(key, text)
    return _integer(key, text)


def parse_list(text: str) -> tuple[str, ...]:
    """Items between commas, spaces around them dropped."""
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def items_of(name: str, text: str) -> tuple[str, ...]:
    """Items of the list that a property is to have; raises ConfigError for very many."""
    if text.count(",") >= LIST_ITEMS_MAX:
        raise ConfigError(name, f"more than {LIST_ITEMS_MAX:,} items")
    return parse_list(text)


def _boolean(key: ConfigKey, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key.name, f"{shown(text)} is neither true nor false")
    return lowered == "true"


def _double(key: ConfigKey, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(key.name, f"{shown(text)} is not a number") from None


def _integer(key: ConfigKey, text: str) -> int:
    bits = _INTEGER_BITS[key.type]
    # 20 digits are past any LONG: int() must not be handed a megabyte of digits from the wire.
    if len(text) > 20 or not _INTEGER.fullmatch(text):
        raise ConfigError(key.name, f"{shown(text)} is not a whole number of {bits} bits")
    number = int(text)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ConfigError(key.name, f"{text!r} does not fit into {bits} bits")
    return number


def render_value(value: Value | None) -> str | None:
    """A value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


_DEFAULTS = {"~": None, '""': ""}


def read_table(table: str) -> Iterator[tuple[ConfigKey, str]]:
    """Definitions, one per line: `name TYPE default extra rule | what it does`; yields each with its `extra`.

    Default `~` is no value, `""` the empty one. Rules: `1..` at least, `0..1` between, `a/b` one of these, `[a/b]`
    a list of these, `!` not empty, `*` anything.
    """
    for line in table.strip().splitlines():
        facts, doc = line.split(" | ", 1)
        name, type_name, default, extra, rule = facts.split(" ")
        yield ConfigKey(name, ConfigType[type_name], _DEFAULTS.get(default, default), doc, _check(rule)), extra


def _check(rule: str) -> Check | None:
    if rule == "*":
        return None
    if rule == "!":
        return not_empty
    if rule[0] == "[":
        return list_of(*rule[1:-1].split("/"))
    if ".." not in rule:
        return one_of(*rule.split("/"))
    low, high = rule.split("..")
    return between(int(low), int(high)) if high else at_least(int(low))
