"""The settings of consumer groups: `group.consumer.*`, and what a group has set for itself."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from moldau.coordinators.consumer.assignors import ASSIGNORS
from moldau.core import group_config
from moldau.core.broker_config import BrokerConfig, broker_key

ASSIGNMENT_INTERVAL_MS = 1_000
REGEX_REFRESH_INTERVAL_MS = 600_000


class ConsumerSettings(NamedTuple):
    """Asked for anew at every decision, as they may change while the broker runs."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""
    assignment_interval_ms: int = ASSIGNMENT_INTERVAL_MS
    """Targets are not computed more often, so that a crowd of joins comes to few of them (KIP-1263)."""
    regex_refresh_interval_ms: int = REGEX_REFRESH_INTERVAL_MS
    migration: str = "bidirectional"

    @classmethod
    def of(cls, config: BrokerConfig) -> "ConsumerSettings":
        return _read(config)

    @classmethod
    def of_group(cls, config: BrokerConfig, own: Mapping[str, str] | None) -> "ConsumerSettings":
        """Settings of one group; `own` is its configuration, if it has any."""
        settings = _read(config)
        if not own:
            return settings
        return settings._replace(
            session_timeout_ms=group_config.group_value(config, own, group_config.SESSION_TIMEOUT_MS),
            heartbeat_interval_ms=group_config.group_value(config, own, group_config.HEARTBEAT_INTERVAL_MS),
            assignment_interval_ms=group_config.group_value(config, own, group_config.ASSIGNMENT_INTERVAL_MS),
        )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group while it has members."""
        return self.migration in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        return self.migration in ("bidirectional", "downgrade")


@lru_cache(maxsize=8)
def _read(config: BrokerConfig) -> ConsumerSettings:
    """Kept for a configuration as long as it is in force: heartbeats ask several times."""
    return ConsumerSettings(
        session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
        size_max=config.int("group.consumer.max.size"),
        assignors=_known_assignors(config.list("group.consumer.assignors")),
        assignment_interval_ms=_int(config, "group.consumer.assignment.interval.ms", ASSIGNMENT_INTERVAL_MS),
        regex_refresh_interval_ms=_int(config, "group.consumer.regex.refresh.interval.ms", REGEX_REFRESH_INTERVAL_MS),
        migration=config.string("group.consumer.migration.policy").lower(),
    )


def _known_assignors(configured: tuple[str, ...]) -> tuple[str, ...]:
    """Kafka's class names mean ours; a class of the user's own cannot be loaded here."""
    short = (name.rpartition(".")[2].removesuffix("Assignor").lower() for name in configured)
    return tuple(name for name in short if name in ASSIGNORS) or tuple(ASSIGNORS)


def _int(config: BrokerConfig, name: str, default: int) -> int:
    return config.int(name) if broker_key(name) is not None else default
