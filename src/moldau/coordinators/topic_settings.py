"""The topic of a coordinator: how it is made, and how its runtime writes and reads it."""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.cluster.image import BrokerInfo
from moldau.protocol.errors import ApiError, ErrorCode

COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact", "compression.type": "producer"}
"""Configuration of a coordinator's topic: without compaction it would lose its state with the segments."""


class TopicSettings(NamedTuple):
    """Made of the broker's configuration each time that this changes."""

    partitions: int
    replication_factor: int
    promised_by: str | None = None
    """The property by which somebody has set the replication factor: it is a promise then, and without enough brokers
    there is no coordinator. Else there are as many replicas as there are brokers, so that a lone broker works."""
    configs: Mapping[str, str] = COMPACTED
    codec: int = 0
    """Compression of the batches that the coordinator writes."""
    commit_timeout_ms: int = 5_000
    """Longest time that a write waits for the other replicas."""
    load_step_bytes: int = 256 * 1024
    """Bytes that are read and replayed in one turn of the event loop: about 10 ms."""
    clean_up_interval_ms: int = 600_000
    """Time between two rounds of the shards' background work."""

    def replicas_among(self, brokers: Mapping[int, BrokerInfo]) -> int:
        """The replication factor where these brokers are there; raises COORDINATOR_NOT_AVAILABLE."""
        alive = len([broker for broker in brokers.values() if not broker.shutting_down])
        if self.promised_by is not None and alive < self.replication_factor:
            reason = f"{self.promised_by} is {self.replication_factor} and there are {alive} brokers"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return max(1, min(self.replication_factor, alive))
