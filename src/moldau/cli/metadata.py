"""Partitions of a topic, asked of the cluster."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from moldau.cli.common import REQUEST_TIMEOUT_S, describe
from moldau.cli.failures import ToolError
from moldau.core.arguments import likely

CREATION_TIMEOUT_S = 10.0
RETRY_S = 0.05

# While the broker creates the topic on first use it has no leader yet, or is not known yet.
_PASSING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)


def partitions_of(client: Producer | Consumer, topic: str) -> list[int]:
    """The partitions of `topic`; asking as a producer creates it where the broker allows that."""
    patience_s = CREATION_TIMEOUT_S if isinstance(client, Producer) else 0.0
    deadline = time.monotonic() + patience_s
    while True:
        found = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is None:
            return sorted(found.partitions)
        if found.error.code() not in _PASSING:
            raise ToolError(f"topic {topic!r}: {describe(found.error)}") from KafkaException(found.error)
        if time.monotonic() > deadline:
            meant = likely(topic, client.list_topics(timeout=REQUEST_TIMEOUT_S).topics)
            hint = f"{meant} If not, create it" if meant else ": create it"
            raise ToolError(f"topic {topic!r} does not exist{hint} with `moldau topics create {topic}`")
        time.sleep(RETRY_S)
