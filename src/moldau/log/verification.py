"""Guards: they stand between a coordinator's word and the first batch of a transaction in a partition (KIP-890).

Before that batch is appended the coordinator is asked whether the partition is in the transaction. Its answer may come
after the transaction was aborted, and even after the next one has begun: a guard that was made before the question is
gone then, and another in its place is another object. So an answer is only good for the transaction that it is about.

A producer has one guard in a partition, however many of its requests ask. It remembers the lowest sequence among them:
what comes first in the log must have come first from the producer. Guards live in memory only.
"""

from moldau.protocol.errors import ApiError, ErrorCode

GUARDS_MAX = 10_000
"""Producers that a partition waits for. The oldest guard goes for a new one: whoever held it asks again."""


class VerificationGuard:
    """Compared by identity. `bumps_epoch`: the producer gets a new epoch for each transaction (version 2)."""

    __slots__ = ("bumps_epoch", "epoch", "lowest_sequence", "made_ms")

    def __init__(self, epoch: int, sequence: int, made_ms: int, *, bumps_epoch: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.made_ms = made_ms
        self.bumps_epoch = bumps_epoch

    def note(self, epoch: int, sequence: int, *, bumps_epoch: bool) -> None:
        """One more request of the producer asks."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence, self.bumps_epoch = epoch, sequence, bumps_epoch
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


NOT_VERIFIED = VerificationGuard(-1, -1, 0, bumps_epoch=False)
"""The guard of those who do not ask: `transaction.partition.verification.enable` is false."""


class VerificationGuards:
    """The guards of one log, by producer id."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, VerificationGuard] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard:
        """The guard of a producer that is about to ask its coordinator."""
        guard = self._by_id.get(producer_id)
        if guard is not None:
            guard.note(epoch, sequence, bumps_epoch=bumps_epoch)
            return guard
        if len(self._by_id) >= GUARDS_MAX:
            del self._by_id[next(iter(self._by_id))]
        guard = self._by_id[producer_id] = VerificationGuard(epoch, sequence, now_ms, bumps_epoch=bumps_epoch)
        return guard

    def check(self, producer_id: int, sequence: int, guard: VerificationGuard | None, *, is_known: bool) -> None:
        """Raise ApiError unless a transaction may begin with this batch. `is_known`: there is state of the producer."""
        if guard is NOT_VERIFIED:
            return
        if guard is None or self._by_id.get(producer_id) is not guard:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id}: the batch is not part of an open transaction"
            )
        if sequence > guard.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {sequence} cannot be the first, {guard.lowest_sequence} was sent",
            )
        if guard.bumps_epoch and not is_known and sequence > 0:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} is not known here, and begins with sequence {sequence} instead of 0",
            )

    def written(self, producer_id: int) -> None:
        """A batch of its transaction is in the log: from now on that tells that the transaction is open."""
        self._by_id.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """A marker is in the log. In transaction version 2 it carries the epoch of the next transaction: a guard of
        that epoch is about that one, and stays."""
        guard = self._by_id.get(producer_id)
        if guard is not None and not (transaction_version >= TRANSACTION_BUMPS_EPOCH and guard.epoch == epoch):
            del self._by_id[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those whose verification never came to a batch."""
        expired = [each for each, guard in self._by_id.items() if now_ms - guard.made_ms >= expiration_ms]
        for producer_id in expired:
            del self._by_id[producer_id]

    def clear(self) -> None:
        self._by_id.clear()


TRANSACTION_BUMPS_EPOCH = 2
"""The transaction version (KIP-890) from which on the end of a transaction brings the producer a new epoch."""
