"""A copier with librdkafka that is a member of a group: which partitions it copies is decided by rebalances (KIP-447).

    python -m tests.faults.transactions.rdkafka_member NAME INCARNATION VERSION SEED GROUP BOOTSTRAP

A zombie is fenced by the group's generation: what it read is another member's by now, and its TxnOffsetCommit is
refused. So the generation must be the one in which the records were read, taken when partitions are assigned: when the
session is lost librdkafka forgets its generation at once, and a commit without one is checked by no broker.
"""

import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.faults.transactions.copier import say
from tests.faults.transactions.rdkafka_copier import FatalError, RdkafkaCopier
from tests.faults.transactions.records import SHARED

MEMBER = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 15_000,  # so long may a member that is busy hold up a rebalance
    "auto.offset.reset": "earliest",
}


class RdkafkaMember(RdkafkaCopier):
    """The loop of KIP-447."""

    topic = SHARED

    def __init__(self, name: str, incarnation: str, seed: int, group: str, bootstrap: str) -> None:
        super().__init__(name, incarnation, seed, group, bootstrap, MEMBER)
        self._generation: object | None = None

    def _begin_reading(self) -> None:
        self._consumer.subscribe([SHARED], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._generation = consumer.consumer_group_metadata()
        say(f"assigned {sorted(each.partition for each in partitions)}")

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._generation = None

    def _group_metadata(self) -> Any:
        if self._generation is None:
            raise FatalError("records without an assignment")
        return self._generation


def main() -> int:
    name, incarnation, _, seed, group, bootstrap = sys.argv[1:]
    return RdkafkaMember(name, incarnation, int(seed), group, bootstrap).run()


if __name__ == "__main__":
    sys.exit(main())
