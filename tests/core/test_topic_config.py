"""A topic's configuration: against Kafka's own table, fallback to the broker, and rules."""

from dataclasses import FrozenInstanceError, fields

import pytest

from moldau.core.broker_config import BrokerConfig
from moldau.core.config import ConfigError, parse_value
from moldau.core.topic_config import BROKER_SYNONYM, TOPIC_KEYS, TopicConfig, validate_overrides
from tests.core.test_broker_config import FACTS


def kafka_facts() -> dict[str, tuple[str, str, str]]:
    rows = (line.split("\t") for line in FACTS.read_text().splitlines())
    return {row[1]: (row[2], row[3], row[4]) for row in rows if row[0] == "topic"}


def test_names_types_defaults_and_broker_synonyms_are_those_of_kafka_4_3() -> None:
    facts = kafka_facts()
    assert facts.keys() <= TOPIC_KEYS.keys()
    for name in facts:
        type_name, default, synonyms = facts[name]
        key = TOPIC_KEYS[name]
        assert (name, key.type.name, key.default) == (name, type_name, default)
        assert BROKER_SYNONYM.get(name, "-") == synonyms.split(";")[0]


def test_every_default_obeys_its_own_rule_and_has_a_line_of_doc() -> None:
    for key in TOPIC_KEYS.values():
        assert key.doc.endswith(".")
        if key.default is not None:
            parse_value(key, key.default)


def test_the_defaults_of_the_fields_are_those_of_the_properties() -> None:
    assert TopicConfig.of(BrokerConfig({}), {}) == TopicConfig()


def test_every_field_is_a_property() -> None:
    names = {name.replace(".", "_") for name in TOPIC_KEYS}
    assert {field.name for field in fields(TopicConfig)} <= names


def test_the_topic_wins_over_the_broker() -> None:
    broker = BrokerConfig({"log.retention.hours": "1", "log.segment.bytes": "2000", "log.cleanup.policy": "compact"})
    config = TopicConfig.of(broker, {"segment.bytes": "3000"})
    assert (config.retention_ms, config.segment_bytes) == (3_600_000, 3000)
    assert config.is_compacted
    assert not config.is_deleted_by_retention


def test_both_policies_can_hold() -> None:
    config = TopicConfig.of(BrokerConfig({}), {"cleanup.policy": "compact, delete"})
    assert config.is_compacted
    assert config.is_deleted_by_retention


def test_no_policy_keeps_everything() -> None:
    config = TopicConfig.of(BrokerConfig({}), {"cleanup.policy": ""})
    assert not config.is_compacted
    assert not config.is_deleted_by_retention


def test_flush_time_falls_back_to_the_scheduler_interval() -> None:
    assert TopicConfig.of(BrokerConfig({"log.flush.scheduler.interval.ms": "7"}), {}).flush_ms == 7


def test_the_one_timestamp_limit_of_old_stands_for_both() -> None:
    config = TopicConfig.of(BrokerConfig({}), {"message.timestamp.difference.max.ms": "9"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (9, 9)
    overrides = {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "8"}
    config = TopicConfig.of(BrokerConfig({}), overrides)
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (9, 8)


def test_the_internal_segment_size_of_kafkas_tests_is_obeyed() -> None:
    assert TopicConfig.of(BrokerConfig({}), {"internal.segment.bytes": "100"}).segment_bytes == 100


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        TopicConfig().retention_ms = 5  # type: ignore[misc]  # the claim is that this fails


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("foo", "1"),
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("segment.bytes", "13"),
        ("local.retention.ms", "-3"),
        ("remote.storage.enable", "true"),
        ("cleanup.policy", "Delete"),
        ("compression.type", "GZIP"),
        ("leader.replication.throttled.replicas", "x"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "maybe"),
    ],
)
def test_a_bad_override_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_overrides({name: value})
    assert error.value.name == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local.retention.bytes", "1000"),
        ("local.retention.ms", "1000"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("remote.storage.enable", "false"),
    ],
)
def test_what_only_matters_with_tiered_storage_is_accepted_and_changes_nothing(name: str, value: str) -> None:
    validate_overrides({name: value})
    assert TopicConfig.of(BrokerConfig({}), {name: value}) == TopicConfig()


def test_compaction_lags_must_not_contradict() -> None:
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        validate_overrides({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_what_kafka_takes_is_taken() -> None:
    validate_overrides(
        {
            "cleanup.policy": "delete,delete",
            "retention.bytes": "-5",
            "retention.ms": " +5 ",
            "preallocate": "TRUE",
            "leader.replication.throttled.replicas": "*",
            "follower.replication.throttled.replicas": "0:1,1:1",
        }
    )
