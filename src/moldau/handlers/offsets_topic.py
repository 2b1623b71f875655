"""The topic of the offsets, `__consumer_offsets`, as a coordinator needs it, whoever asks for it first."""

from moldau.core.broker_config import BrokerConfig
from moldau.handlers.context import Services
from moldau.protocol.errors import ApiError, ErrorCode


def offsets_topic_configs(config: BrokerConfig) -> dict[str, str]:
    """Its settings. Without compaction groups would lose their offsets with the segments."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
    }


def offsets_replication_factor(services: Services) -> int:
    """A replication factor that somebody has set is a promise: without enough brokers there is no coordinator. The
    default is as many replicas as there are brokers, so that a lone broker works."""
    brokers, config = services.metadata.image.brokers, services.config
    wanted, name = config.int("offsets.topic.replication.factor"), "offsets.topic.replication.factor"
    alive = len([broker for broker in brokers.values() if not broker.shutting_down])
    if config.is_explicit(name) and alive < wanted:
        reason = f"{name} is {wanted} and there are {alive} brokers"
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    return max(1, min(wanted, alive))
