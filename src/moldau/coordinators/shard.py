"""Interface of a coordinator to its runtime: state over the records of one partition of an internal topic.

The runtime (`broker.coordinator`, `broker.shard_runtime`) finds a shard by the hash of a key, reads its log when this
broker comes to lead the partition, replays and appends what a decision returns, and answers when that is durable. The
shard decides. It does no I/O: what it needs of the world comes with its making, and its timers are among that.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from moldau.coordinators.outcome import NOTHING, Outcome
from moldau.coordinators.records import CoordinatorRecord, RecordTypes
from moldau.core.ids import NO_PRODUCER_ID


class CoordinatorShard(Protocol):
    """Made empty; `replay` fills it. Its own methods take a request's values and return a `Decision` or raise ApiError.

    A shard names its record types and says what a record changes. The rest is for those who need it.
    """

    record_types: ClassVar[RecordTypes]

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Change durable state: the only way, live and at restart alike. With a producer id the record is of an open
        transaction, whose end comes as `end_transaction`."""
        ...

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction: what it carried counts now, or never did."""

    def on_loaded(self) -> Sequence[Outcome]:
        """The log has been read to its end. What is returned is written."""
        return ()

    def on_unloaded(self) -> None:
        """Another broker coordinates now, or this one begins again: tell everybody who waits."""

    def topics_deleted(self, topic_ids: Mapping[str, bytes]) -> Outcome:  # noqa: ARG002  # for those who need it
        """Topics are gone, or others of the same name: forget what is about them."""
        return NOTHING

    def clean_up(self) -> Outcome:
        """Do what is done now and then."""
        return NOTHING
