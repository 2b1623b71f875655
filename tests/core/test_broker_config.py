"""The broker's properties: against Kafka's own table, and what is made of a properties file."""

from pathlib import Path

import pytest

from moldau.core import broker_config
from moldau.core.broker_config import BROKER_KEYS, RETENTION_MS, ROLL_MS, BrokerConfig, validate_dynamic
from moldau.core.config import ConfigError, UpdateMode, parse_value
from moldau.core.listeners import Listener

FACTS = Path(__file__).with_name("kafka_4_3_1_configs.tsv")
MODES = {
    "read-only": UpdateMode.READ_ONLY,
    "per-broker": UpdateMode.PER_BROKER,
    "cluster-wide": UpdateMode.CLUSTER_WIDE,
}
# KRaft's mandatory ones are optional here, and what names a Java class has no meaning.
OUR_OWN_DEFAULT = {
    "node.id",
    "process.roles",
    "controller.listener.names",
    "metric.reporters",
    "principal.builder.class",
}


def kafka_facts() -> dict[str, tuple[str, str, str]]:
    rows = (line.split("\t") for line in FACTS.read_text().splitlines())
    return {row[1]: (row[2], row[3], row[4]) for row in rows if row[0] == "broker"}


def parse(**properties: str) -> BrokerConfig:
    config, unknown = BrokerConfig.parse({name.replace("_", "."): value for name, value in properties.items()})
    assert unknown == []
    return config


def test_types_defaults_and_update_modes_are_those_of_kafka_4_3() -> None:
    facts = kafka_facts()
    shared = BROKER_KEYS.keys() & facts.keys()
    assert len(shared) > 180
    for name in shared:
        type_name, default, mode = facts[name]
        key = BROKER_KEYS[name]
        assert (name, key.type.name, key.mode) == (name, type_name, MODES[mode])
        if name not in OUR_OWN_DEFAULT:
            assert (name, key.default) == (name, None if default == "null" else default)


def test_every_default_obeys_its_own_rule_and_has_a_line_of_doc() -> None:
    for key in BROKER_KEYS.values():
        assert key.doc.endswith(".")
        if key.default is not None:
            parse_value(key, key.default)


def test_unknown_properties_are_named_and_known_ones_are_not() -> None:
    _config, unknown = BrokerConfig.parse({"zeta": "1", "num.partitions": "2", "alpha": "x"})
    assert unknown == ["alpha", "zeta"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "-2"),
        ("log.flush.policy", "never"),
        ("log.dirs", ""),
        ("compression.type", "rar"),
        ("listener.name.plaintext.max.connections", "x"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.parse({name: value})
    assert error.value.name == name


def test_values_have_the_type_of_their_accessor() -> None:
    config = parse(num_partitions="3", log_dirs="/a, /b")
    assert config.int("num.partitions") == 3
    assert config.long("log.retention.bytes") == -1
    assert config.bool("auto.create.topics.enable") is True
    assert config.string("log.flush.policy") == "group"
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.data_directories == ("/a", "/b")
    assert config.optional_int("log.retention.ms") is None


@pytest.mark.parametrize("name", ["log.dirs", "auto.create.topics.enable", "log.retention.ms"])
def test_the_wrong_accessor_is_our_mistake(name: str) -> None:
    with pytest.raises(TypeError):
        parse().int(name)


def test_explicit_values_are_told_from_defaults() -> None:
    config = parse(num_partitions="1")
    assert config.is_explicit("num.partitions")
    assert not config.is_explicit("default.replication.factor")


@pytest.mark.parametrize(
    ("properties", "expected_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_wins(properties: dict[str, str], expected_ms: int) -> None:
    assert parse(**properties).first_ms(RETENTION_MS) == expected_ms


def test_roll_time_falls_back_to_hours() -> None:
    assert parse(log_roll_hours="1").first_ms(ROLL_MS) == 3_600_000


def test_broker_id_comes_before_kraft_node_id() -> None:
    assert parse().broker_id == -1
    assert parse(node_id="4").broker_id == 4
    assert parse(node_id="4", broker_id="5").broker_id == 5


def test_listeners_default_to_port_9092_on_every_interface() -> None:
    assert parse().listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)


def test_port_and_host_name_of_old_still_work() -> None:
    assert parse(port="9999", host_name="::1").listeners == (Listener("PLAINTEXT", "::1", 9999, "PLAINTEXT"),)
    config = parse(advertised_host_name="example.org", advertised_port="1234")
    assert config.advertised_listeners == (Listener("PLAINTEXT", "example.org", 1234, "PLAINTEXT"),)


def test_several_listeners_with_names_of_their_own() -> None:
    config, _unknown = BrokerConfig.parse(
        {
            "listeners": "inside://[::1]:9092,OUTSIDE://0.0.0.0:9093",
            "advertised.listeners": "INSIDE://[::1]:9092,OUTSIDE://example.org:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.listeners == (
        Listener("INSIDE", "::1", 9092, "PLAINTEXT"),
        Listener("OUTSIDE", "0.0.0.0", 9093, "PLAINTEXT"),
    )
    assert [str(listener) for listener in config.advertised_listeners] == [
        "INSIDE://[::1]:9092",
        "OUTSIDE://example.org:443",
    ]
    assert config.inter_broker_listener == "INSIDE"


def test_a_kraft_properties_file_starts_without_its_controller_listener() -> None:
    config, unknown = BrokerConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert unknown == ["controller.quorum.bootstrap.servers"]
    assert [listener.port for listener in config.listeners] == [9092]
    assert [listener.host for listener in config.advertised_listeners] == ["localhost"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "localhost:9092"),
        ("listeners", "PLAINTEXT://localhost"),
        ("listeners", "PLAINTEXT://localhost:70000"),
        ("listeners", "INSIDE://localhost:1"),
        ("listeners", "PLAINTEXT://:1,PLAINTEXT://:2"),
        ("listeners", "PLAINTEXT://:1,SSL://:1"),
        ("listeners", ""),
        ("advertised.listeners", "SSL://localhost:1"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1"),
        ("listener.security.protocol.map", "PLAINTEXT:NONE"),
        ("listener.security.protocol.map", "PLAINTEXT"),
    ],
)
def test_bad_listeners_are_refused_with_their_property(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.parse({name: value})
    assert error.value.name == name


def test_any_free_port_can_be_asked_for_twice() -> None:
    protocols = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"
    config = parse(listeners="PLAINTEXT://:0,INSIDE://:0", listener_security_protocol_map=protocols)
    assert len(config.listeners) == 2


def test_a_listener_can_have_a_value_of_its_own() -> None:
    config, unknown = BrokerConfig.parse({"listener.name.inside.max.connections": "5", "max.connections": "9"})
    assert unknown == []
    assert config.for_listener("INSIDE", "max.connections") == 5
    assert config.for_listener("OUTSIDE", "max.connections") == 9


def test_changes_at_run_time_win_over_the_file_and_one_brokers_over_the_clusters() -> None:
    config = parse(log_retention_ms="1")
    changed = config.with_dynamic({"log.retention.ms": "2", "log.segment.bytes": "1000"}, {"log.retention.ms": "3"})
    assert changed.first_ms(RETENTION_MS) == 3
    assert changed.int("log.segment.bytes") == 1000
    assert config.first_ms(RETENTION_MS) == 1


@pytest.mark.parametrize(
    ("name", "value", "for_one_broker"),
    [
        ("num.partitions", "3", True),
        ("log.retention.minutes", "3", True),
        ("listeners", "PLAINTEXT://:1", False),
        ("log.retention.ms", "x", True),
        ("log.retention.ms", "0", False),
    ],
)
def test_what_cannot_change_at_run_time_is_refused(name: str, value: str, for_one_broker: bool) -> None:
    with pytest.raises(ConfigError) as error:
        validate_dynamic({name: value}, for_one_broker=for_one_broker)
    assert error.value.name == name


def test_unknown_properties_can_be_set_at_run_time() -> None:
    validate_dynamic({"foo.bar": "3", "log.retention.ms": "3"}, for_one_broker=True)


def test_the_listener_of_brokers_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def protocols(text: str) -> dict[str, str]:
        parsed.append(text)
        return {"INSIDE": "PLAINTEXT"}

    monkeypatch.setattr(broker_config, "parse_protocol_map", protocols)
    config = BrokerConfig({"listeners": "INSIDE://:1"})
    assert [config.inter_broker_listener for _ in range(3)] == ["INSIDE"] * 3
    assert len(parsed) == 1


def test_the_listener_of_brokers_follows_a_new_configuration() -> None:
    config = BrokerConfig({"inter.broker.listener.name": "first"})
    assert config.inter_broker_listener == "FIRST"
    assert config.with_dynamic({"inter.broker.listener.name": "second"}, {}).inter_broker_listener == "SECOND"
