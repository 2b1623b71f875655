"""Checks of configurations for topics and brokers, with the errors that clients get."""

from collections.abc import Mapping

from moldau.core.broker_config import validate_dynamic
from moldau.core.config import ConfigError
from moldau.core.topic_config import validate_overrides
from moldau.protocol.errors import ApiError, ErrorCode

Configs = Mapping[str, str]


def check_topic_configs(configs: Configs) -> None:
    """Raise INVALID_CONFIG unless a topic can have this configuration."""
    try:
        validate_overrides(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_broker_configs(entity: str, configs: Configs) -> None:
    """Raise INVALID_REQUEST (Kafka's choice here) unless these settings can change at run time."""
    try:
        validate_dynamic(configs, for_one_broker=bool(entity))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
