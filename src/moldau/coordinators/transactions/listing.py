"""ListTransactions: which transactions are told of (KIP-664, KIP-994, KIP-1152)."""

from typing import NamedTuple

from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.coordinators.transactions.state import DEAD
from moldau.coordinators.transactions.transaction import Transaction


class Filters(NamedTuple):
    """Filters of a request; without any it asks for everything."""

    states: frozenset[str] = frozenset()
    """Names of states; one that does not exist matches nothing."""
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    pattern: TopicRegex | None = None

    def asks_for(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if transaction.state is DEAD:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.state.value not in self.states:
            return False
        if self.longer_than_ms >= 0 and now_ms - transaction.start_ms <= self.longer_than_ms:
            return False
        return self.pattern is None or self.pattern.matches(transactional_id)
