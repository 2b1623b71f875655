"""What DescribeConfigs shows. The expected chains were taken from Apache Kafka 4.3.1."""

from moldau.core.broker_config import BrokerConfig
from moldau.core.config import ConfigEntry, ConfigSource, ConfigType
from moldau.core.config_entries import broker_entries, default_broker_entries, topic_entries

TOPIC, BROKER, CLUSTER, FILE, DEFAULT = (ConfigSource(number) for number in (1, 2, 3, 4, 5))


def topic(broker: BrokerConfig, overrides: dict[str, str], name: str) -> ConfigEntry:
    return {entry.name: entry for entry in topic_entries(broker, overrides)}[name]


def broker(config: BrokerConfig, name: str) -> ConfigEntry:
    return {entry.name: entry for entry in broker_entries(config)}[name]


def test_an_override_comes_before_the_brokers_default() -> None:
    entry = topic(BrokerConfig({}), {"cleanup.policy": "compact,delete"}, "cleanup.policy")
    assert (entry.value, entry.source, entry.type) == ("compact,delete", TOPIC, ConfigType.LIST)
    assert entry.synonyms == (
        ("cleanup.policy", "compact,delete", TOPIC),
        ("log.cleanup.policy", "delete", DEFAULT),
    )


def test_a_chain_begins_at_the_propertys_own_name() -> None:
    entry = topic(BrokerConfig({"log.retention.hours": "5"}), {}, "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("18000000", DEFAULT, ())


def test_all_layers_show_in_order_of_precedence() -> None:
    config = BrokerConfig({"log.retention.hours": "5"}, {"log.retention.ms": "6000"}, {"log.retention.ms": "5000"})
    expected = (
        ("log.retention.ms", "5000", BROKER),
        ("log.retention.ms", "6000", CLUSTER),
        ("log.retention.hours", "5", FILE),
        ("log.retention.hours", "168", DEFAULT),
    )
    entry = broker(config, "log.retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("5000", BROKER, expected)
    assert topic(config, {}, "retention.ms").synonyms == expected


def test_a_property_without_any_value_is_a_default() -> None:
    entry = broker(BrokerConfig({}), "log.retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, ())


def test_read_only_says_what_cannot_change() -> None:
    config = BrokerConfig({})
    assert broker(config, "num.partitions").is_read_only
    assert not broker(config, "log.segment.bytes").is_read_only
    assert not topic(config, {}, "segment.bytes").is_read_only


def test_secrets_are_not_shown() -> None:
    entry = broker(BrokerConfig({"ssl.key.password": "x"}), "ssl.key.password")
    assert (entry.value, entry.is_sensitive, entry.source) == (None, True, FILE)
    assert entry.synonyms == (("ssl.key.password", None, FILE),)


def test_what_nobody_knows_is_shown_as_a_secret() -> None:
    entry = broker(BrokerConfig({}, {}, {"foo.bar": "3"}), "foo.bar")
    assert (entry.value, entry.is_sensitive, entry.is_read_only, entry.type) == (None, True, True, ConfigType.UNKNOWN)
    assert entry.synonyms == (("foo.bar", None, BROKER),)


def test_a_listeners_own_value_falls_back_to_the_plain_property() -> None:
    name = "listener.name.plaintext.max.connections"
    entry = broker(BrokerConfig({}, {}, {name: "10"}), name)
    assert entry.value == "10"
    assert entry.synonyms == ((name, "10", BROKER), ("max.connections", "2147483647", DEFAULT))


def test_values_are_shown_in_kafkas_spelling() -> None:
    assert broker(BrokerConfig({"log.preallocate": " TRUE "}), "log.preallocate").value == "true"


def test_the_clusters_defaults_show_only_what_was_set_for_it() -> None:
    config = BrokerConfig({"log.segment.bytes": "5000"}, {"log.segment.bytes": "6000"}, {"log.segment.bytes": "7000"})
    (entry,) = default_broker_entries(config)
    assert (entry.name, entry.value, entry.source) == ("log.segment.bytes", "6000", CLUSTER)
    assert entry.synonyms == (("log.segment.bytes", "6000", CLUSTER),)


def test_every_entry_has_documentation() -> None:
    config = BrokerConfig({})
    assert all(entry.doc for entry in [*broker_entries(config), *topic_entries(config, {})])
