"""The topic of the transactions, `__transaction_state`, as a coordinator needs it."""

from moldau.coordinators.topic_settings import TopicSettings
from moldau.core.broker_config import BrokerConfig

REPLICATION_FACTOR = "transaction.state.log.replication.factor"
MIN_ISR = "transaction.state.log.min.isr"


def transaction_topic_settings(config: BrokerConfig) -> TopicSettings:
    """The settings of the topic that transactions live in."""
    return TopicSettings(
        partitions=config.int("transaction.state.log.num.partitions"),
        replication_factor=config.int(REPLICATION_FACTOR),
        promised_by=REPLICATION_FACTOR if config.is_explicit(REPLICATION_FACTOR) else None,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.int(MIN_ISR)),
            "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
        },
        clean_up_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    )
