"""The topic of the offsets, `__consumer_offsets`, as a coordinator needs it, whoever asks for it first."""

from moldau.coordinators.topic_settings import COMPACTED, TopicSettings
from moldau.core.broker_config import BrokerConfig

REPLICATION_FACTOR = "offsets.topic.replication.factor"


def offsets_topic_settings(config: BrokerConfig) -> TopicSettings:
    """The settings of the topic that groups live in."""
    return TopicSettings(
        partitions=config.int("offsets.topic.num.partitions"),
        replication_factor=config.int(REPLICATION_FACTOR),
        promised_by=REPLICATION_FACTOR if config.is_explicit(REPLICATION_FACTOR) else None,
        configs={**COMPACTED, "segment.bytes": str(config.int("offsets.topic.segment.bytes"))},
        codec=config.int("offsets.topic.compression.codec"),
        commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
        clean_up_interval_ms=config.long("offsets.retention.check.interval.ms"),
    )
