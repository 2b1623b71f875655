"""A consumer group's own configuration (KIP-848): the properties, their limits, and the broker's values behind them.

Share and streams groups have properties of their own in Kafka; they come with those groups.
"""

from collections.abc import Mapping

from moldau.core.broker_config import BrokerConfig
from moldau.core.config import ConfigError, ConfigKey, parse_value, read_table

SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL_MS = "consumer.assignment.interval.ms"

# The fourth column is the broker property that holds where the group says nothing.
_TABLE = f"""
{ASSIGNMENT_INTERVAL_MS} INT 1000 group.{ASSIGNMENT_INTERVAL_MS} 0.. | Shortest time between two assignments.
{HEARTBEAT_INTERVAL_MS} INT 5000 group.{HEARTBEAT_INTERVAL_MS} 1.. | How often the group's members report.
{SESSION_TIMEOUT_MS} INT 45000 group.{SESSION_TIMEOUT_MS} 1.. | Silence after which a member of the group is gone.
"""

_ROWS = tuple(read_table(_TABLE))
GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key, _synonym in _ROWS}
GROUP_SYNONYM: dict[str, str] = {key.name: synonym for key, synonym in _ROWS}
"""The broker property that a group property falls back to."""


def group_value(broker: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """The value of group property `name` that holds: the group's, else the broker's."""
    return int(overrides[name]) if name in overrides else broker.int(GROUP_SYNONYM[name])


def validate_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Refuse unknown names, values beyond the broker's limits and contradictions with a ConfigError."""
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise ConfigError(name, "there is no such group property")
        parse_value(key, text)
        _check_limits(broker, name, int(text))
    if group_value(broker, overrides, SESSION_TIMEOUT_MS) <= group_value(broker, overrides, HEARTBEAT_INTERVAL_MS):
        raise ConfigError(SESSION_TIMEOUT_MS, f"must be greater than {HEARTBEAT_INTERVAL_MS}")


def _check_limits(broker: BrokerConfig, name: str, value: int) -> None:
    least, most = (GROUP_SYNONYM[name].replace("consumer.", f"consumer.{side}.") for side in ("min", "max"))
    if value < broker.int(least):
        raise ConfigError(name, f"{value} is less than {least}")
    if value > broker.int(most):
        raise ConfigError(name, f"{value} is greater than {most}")
