"""Ports through which a coordinator has the markers written that end a transaction."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from moldau.coordinators.transactions.state import PREPARE_COMMIT
from moldau.core.ids import TopicPartition

if TYPE_CHECKING:  # a broker without transactions starts sooner
    from moldau.coordinators.transactions.transaction import Transaction


class Marker(NamedTuple):
    """One marker, for each of the partitions that a transaction wrote to."""

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int

    @classmethod
    def of(cls, transaction: "Transaction") -> "Marker":
        """The marker of a prepared transaction."""
        return cls(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT,
            transaction.partitions,
            transaction.client_version,
        )


class Delivery(Protocol):
    """Markers on their way."""

    def cancel(self) -> None:
        """Send no more, and tell nobody: another broker coordinates now."""
        ...


class Markers(Protocol):
    """The way to the leaders of the partitions."""

    def send(self, transactional_id: str, marker: Marker, done: Callable[[bool], None]) -> Delivery:
        """Try until each partition has the marker or is gone, then call `done` with True, never before this returns;
        with False if somebody else turned out to be the coordinator."""
        ...
