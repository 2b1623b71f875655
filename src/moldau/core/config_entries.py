"""Entries of DescribeConfigs for topics, groups and brokers: value, source, and every other place that has a value.

The chain of synonyms is Kafka's, its oddities included: where only `log.retention.hours` is set, `log.retention.ms` has
no synonyms and so counts as a default, because a chain begins at the property's own name.
"""

from collections.abc import Iterator, Mapping

from moldau.core.broker_config import (
    BROKER_KEYS,
    FLUSH_MS,
    RETENTION_MS,
    ROLL_JITTER_MS,
    ROLL_MS,
    BrokerConfig,
    base_name,
    broker_key,
)
from moldau.core.config import (
    ConfigEntry,
    ConfigError,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    UpdateMode,
    parse_value,
    render_value,
)
from moldau.core.group_config import GROUP_KEYS, GROUP_SYNONYM, group_value
from moldau.core.topic_config import BROKER_SYNONYM, SEGMENT_BYTES_FOR_TESTS, TOPIC_KEYS, effective_value

_UNIT_CHAINS = {
    name: tuple(other for other, _factor in chain)
    for chain in (FLUSH_MS, RETENTION_MS, ROLL_JITTER_MS, ROLL_MS)
    for name, _factor in chain
}
_UNIT_CHAINS["log.flush.scheduler.interval.ms"] = ("log.flush.scheduler.interval.ms",)


def topic_entries(broker: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every topic property, for a topic with these overrides on this broker."""
    for key in TOPIC_KEYS.values():
        if key.name != SEGMENT_BYTES_FOR_TESTS or key.name in overrides:
            yield _topic_entry(broker, overrides, key)


def _topic_entry(broker: BrokerConfig, overrides: Mapping[str, str], key: ConfigKey) -> ConfigEntry:
    value = render_value(effective_value(broker, overrides, key.name))
    synonyms = _synonyms(broker, BROKER_SYNONYM[key.name]) if key.name in BROKER_SYNONYM else ()
    if key.name in overrides:
        synonyms = (ConfigSynonym(key.name, overrides[key.name], ConfigSource.DYNAMIC_TOPIC), *synonyms)
    return ConfigEntry(key.name, value, _source(synonyms), False, key.is_sensitive, synonyms, key.type, key.doc)


def group_entries(broker: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every property of a consumer group, for a group with these overrides on this broker."""
    for name, key in GROUP_KEYS.items():
        synonyms = _synonyms(broker, GROUP_SYNONYM[name])
        if name in overrides:
            synonyms = (ConfigSynonym(name, overrides[name], ConfigSource.GROUP), *synonyms)
        value = render_value(group_value(broker, overrides, name))
        yield ConfigEntry(name, value, _source(synonyms), False, key.is_sensitive, synonyms, key.type, key.doc)


def broker_entries(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every property of the broker, with unknown ones that were set."""
    names = dict.fromkeys(BROKER_KEYS)
    for layer in (broker.static, broker.dynamic_default, broker.dynamic_broker):
        names.update(dict.fromkeys(layer))
    for name in names:
        yield _broker_entry(broker, name)


def _broker_entry(broker: BrokerConfig, name: str) -> ConfigEntry:
    synonyms = _synonyms(broker, name)
    return _entry(name, broker.text(name), synonyms)


def default_broker_entries(broker: BrokerConfig) -> Iterator[ConfigEntry]:
    """Properties that were set for all brokers of the cluster (the broker resource with the empty name)."""
    for name, text in broker.dynamic_default.items():
        synonyms = _synonyms(broker, name)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        yield _entry(name, text, tuple(synonym for synonym in synonyms if synonym.source is source))


def _entry(name: str, text: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    key = broker_key(name)
    if key is None:  # nobody knows what it holds: shown as a secret, as Kafka does
        return ConfigEntry(name, None, _source(synonyms), True, True, synonyms, ConfigType.UNKNOWN, None)
    # Kafka calls listener.name.* read-only here although it lets them change.
    read_only = name not in BROKER_KEYS or key.mode is UpdateMode.READ_ONLY
    value = None if key.is_sensitive else _normalized(key, text)
    return ConfigEntry(name, value, _source(synonyms), read_only, key.is_sensitive, synonyms, key.type, key.doc)


def _normalized(key: ConfigKey, text: str | None) -> str | None:
    if text is None or text == key.default:
        return text
    try:
        return render_value(parse_value(key, text))
    except ConfigError:
        return text


def _synonyms(broker: BrokerConfig, name: str) -> tuple[ConfigSynonym, ...]:
    names = _chain(name)
    sensitive = _is_sensitive(name)
    found = [
        ConfigSynonym(other, None if sensitive else layer[other], source)
        for source, layer in broker.layers()
        for other in names
        if other in layer
    ]
    for other in names:
        key = BROKER_KEYS.get(other)
        if key and key.default is not None:
            found.append(ConfigSynonym(other, None if sensitive else key.default, ConfigSource.DEFAULT))
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _chain(name: str) -> tuple[str, ...]:
    base = base_name(name)
    return (name, base) if base != name else _UNIT_CHAINS.get(name, (name,))


def _is_sensitive(name: str) -> bool:
    key = broker_key(name)
    return key is None or key.is_sensitive


def _source(synonyms: tuple[ConfigSynonym, ...]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT
