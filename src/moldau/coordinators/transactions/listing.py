"""ListTransactions: which transactions are told of (KIP-664, KIP-994, KIP-1152)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from moldau.coordinators.consumer.topic_regex import TopicRegex
from moldau.coordinators.transactions.state import BY_NAME, DEAD, TransactionState
from moldau.coordinators.transactions.transaction import Transaction


class Filters(NamedTuple):
    """What a request asks for; without any filter it asks for everything. Raises INVALID_REGULAR_EXPRESSION."""

    states: frozenset[TransactionState] | None
    producer_ids: frozenset[int]
    longer_than_ms: int
    pattern: TopicRegex | None
    unknown_states: tuple[str, ...]

    @classmethod
    def of(
        cls,
        states: Sequence[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> "Filters":
        """`states` that are none are told back to the one who asks, and match nothing."""
        known = frozenset(BY_NAME[each] for each in states if each in BY_NAME)
        return cls(
            known if states else None,
            frozenset(producer_ids),
            longer_than_ms,
            TopicRegex(pattern) if pattern else None,
            tuple(dict.fromkeys(each for each in states if each not in BY_NAME)),
        )

    def matching(self, items: Iterable[tuple[str, Transaction]], now_ms: int) -> Iterator[tuple[str, Transaction]]:
        """The ids that are asked for."""
        return ((name, each) for name, each in items if self._is_asked_for(name, each, now_ms))

    def _is_asked_for(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if transaction.state is DEAD:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.longer_than_ms >= 0 and now_ms - transaction.start_ms <= self.longer_than_ms:
            return False
        return self.pattern is None or self.pattern.matches(transactional_id)
