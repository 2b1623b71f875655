"""A group's configuration: what holds, and what Apache Kafka 4.3.1 refused too."""

import pytest

from moldau.core.broker_config import BrokerConfig, broker_key
from moldau.core.config import ConfigError, parse_value
from moldau.core.group_config import GROUP_KEYS, GROUP_SYNONYM, group_value, validate_group

DEFAULTS = BrokerConfig({})


def test_defaults_are_those_of_the_broker_properties() -> None:
    for name, key in GROUP_KEYS.items():
        fallback = broker_key(GROUP_SYNONYM[name])
        assert fallback is not None
        assert key.default is not None
        assert (key.type, key.default) == (fallback.type, fallback.default)
        assert parse_value(key, key.default) == group_value(DEFAULTS, {}, name)


def test_a_groups_own_value_comes_before_the_brokers() -> None:
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    assert group_value(broker, {}, "consumer.session.timeout.ms") == 50_000
    assert group_value(broker, {"consumer.session.timeout.ms": "46000"}, "consumer.session.timeout.ms") == 46_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "1"),
        ("consumer.session.timeout.ms", "x"),
        ("consumer.session.timeout.ms", "1000"),
        ("consumer.session.timeout.ms", "100000"),
        ("consumer.heartbeat.interval.ms", "0"),
        ("consumer.assignment.interval.ms", "-1"),
        ("consumer.assignment.interval.ms", "20000"),
    ],
)
def test_what_is_unknown_or_beyond_the_brokers_limits_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        validate_group(DEFAULTS, {name: text})


def test_the_limits_themselves_are_allowed() -> None:
    for session, heartbeat, assignment in (("45000", "5000", "0"), ("60000", "15000", "15000")):
        validate_group(
            DEFAULTS,
            {
                "consumer.session.timeout.ms": session,
                "consumer.heartbeat.interval.ms": heartbeat,
                "consumer.assignment.interval.ms": assignment,
            },
        )


def test_a_session_lasts_longer_than_the_time_between_heartbeats() -> None:
    broker = BrokerConfig({"group.consumer.min.session.timeout.ms": "6000"})
    with pytest.raises(ConfigError, match="must be greater than"):
        validate_group(broker, {"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "7000"})
