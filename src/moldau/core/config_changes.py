"""IncrementalAlterConfigs' four operations on a set of properties (KIP-339)."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from moldau.core.config import ConfigError, ConfigKey, ConfigType, parse_list


class ConfigOperation(IntEnum):
    """The numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class MalformedChange(ConfigError):
    """Error: a change makes no sense for any property. INVALID_REQUEST, where other errors are INVALID_CONFIG."""


class ConfigChange(NamedTuple):
    """One operation on one property."""

    name: str
    operation: int
    value: str | None


def apply_changes(
    configs: Mapping[str, str], changes: Iterable[ConfigChange], key_of: Callable[[str], ConfigKey | None]
) -> dict[str, str]:
    """`configs` after `changes`; raises ConfigError, MalformedChange. The rules are not applied here."""
    result = dict(configs)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise MalformedChange(change.name, "is there twice")
        seen.add(change.name)
        _apply(result, change, key_of(change.name))
    return result


def _apply(configs: dict[str, str], change: ConfigChange, key: ConfigKey | None) -> None:
    name, operation, value = change
    if operation == ConfigOperation.DELETE:
        configs.pop(name, None)
    elif value is None:
        raise MalformedChange(name, "has no value")
    elif operation == ConfigOperation.SET:
        configs[name] = value
    elif operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        configs[name] = _changed_list(configs, name, operation, parse_list(value), key)
    else:
        raise MalformedChange(name, f"there is no operation {operation}")


def _changed_list(
    configs: Mapping[str, str], name: str, operation: int, items: tuple[str, ...], key: ConfigKey | None
) -> str:
    if key is None or key.type is not ConfigType.LIST:
        raise ConfigError(name, "is not a list")
    old = parse_list(configs.get(name, key.default or ""))
    if operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys(old + items))
    return ",".join(item for item in old if item not in items)
