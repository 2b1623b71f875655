"""Configuration of a subscription to clients' metrics (KIP-714): its properties, and what they may say.

`match` chooses clients: a list of `selector=pattern`, all of which must fit the whole of what a client says of itself.
"""

from collections.abc import Iterator, Mapping

from moldau.core.config import (
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    parse_list,
    parse_value,
    read_table,
)

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
INTERVAL_MS_DEFAULT = 300_000
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

_TABLE = f"""
{METRICS} LIST "" - * | Beginnings of the names of metrics that clients are asked for; `*` is all of them.
{INTERVAL_MS} INT {INTERVAL_MS_DEFAULT} - 100..3600000 | How often a client pushes its metrics.
{MATCH} LIST "" - * | Clients that are asked, as selector=pattern; without, all of them.
"""
CLIENT_METRICS_KEYS: dict[str, ConfigKey] = {key.name: key for key, _extra in read_table(_TABLE)}


def client_metrics_entries(overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every property of a subscription with these values."""
    for name, key in CLIENT_METRICS_KEYS.items():
        default = ConfigSynonym(name, key.default, ConfigSource.DEFAULT)
        is_set = name in overrides
        own = (ConfigSynonym(name, overrides[name], ConfigSource.CLIENT_METRICS),) if is_set else ()
        synonyms = (*own, default)
        yield ConfigEntry(name, synonyms[0].value, synonyms[0].source, False, False, synonyms, key.type, key.doc)


def patterns_of(overrides: Mapping[str, str]) -> dict[str, str]:
    """Patterns by selector; raises ConfigError."""
    found: dict[str, str] = {}
    for item in parse_list(overrides.get(MATCH, "")):
        selector, equals, pattern = item.partition("=")
        if not equals or selector.strip() not in SELECTORS:
            raise ConfigError(MATCH, f"{item[:80]!r} is not selector=pattern with one of {', '.join(SELECTORS)}")
        found[selector.strip()] = pattern.strip()
    return found


def validate_client_metrics(overrides: Mapping[str, str]) -> None:
    """Refuse values that are none with a ConfigError. Names are known by then."""
    for name, text in overrides.items():
        parse_value(CLIENT_METRICS_KEYS[name], text)
    patterns_of(overrides)
