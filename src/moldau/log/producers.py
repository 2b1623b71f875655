"""Producer state of one log: last sequences for idempotence, open transactions (KIP-98).

The law: `check` looks and changes nothing; `update` is called with the batch that was written, in a leader, in a
follower and in recovery alike. The cost of both does not depend on the number of producers.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import NamedTuple

from moldau.core.files import Buffer
from moldau.log.txn_index import AbortedTxn
from moldau.log.verification import TRANSACTION_BUMPS_EPOCH, VerificationGuard, VerificationGuards
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    NO_SEQUENCE,
    SEQUENCE_MASK,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    EndTxnMarker,
    read_end_txn_marker,
)
from moldau.records.record import RecordFormatError

log = logging.getLogger(__name__)

BATCHES_KEPT = 5
"""Batches that an idempotent producer may have in flight, and may therefore send again."""

KEPT_BEFORE_MAX = 4 * (BATCHES_KEPT - 1)
LAST_SEQUENCE = -4
"""Place of the last sequence in the flat tuple of an entry."""

PRODUCERS_MAX = 10_000
"""Producers that a partition remembers. Kafka has no such bound, only a time (producer.id.expiration.ms, a day):
clients that make a producer for each record would take memory without end, and each roll writes all of them down on
the event loop, 2 us for each that has changed. A producer that is forgotten is a new one when it comes back (KIP-360):
a batch that it sends again after 9,000 others have written since would be stored twice."""

PRODUCERS_FORGOTTEN = 1000
"""Producers that are forgotten at a time: the idle ones must be looked for among all."""

NO_OFFSET = -1
NO_PRODUCER_EPOCH = -1
NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """One written batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class ProducerEntry:
    """One producer id in this partition.

    Its last batches are one flat tuple, the fields of `BatchMetadata` of each in turn: there may be very many
    producers, and a deque of tuples took four times as much memory. Whoever changes an entry sets `rows` to None.
    """

    __slots__ = (
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "kept",
        "last_seen_ms",
        "last_timestamp",
        "producer_id",
        "rows",
    )

    def __init__(self, producer_id: int, epoch: int, last_seen_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.kept: tuple[int, ...] = ()
        self.rows: bytes | None = None
        """The rows of the last snapshot, if nothing has changed since."""
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.current_txn_first_offset = NO_OFFSET
        self.last_timestamp = -1
        self.last_seen_ms = last_seen_ms

    @property
    def batches(self) -> list[BatchMetadata]:
        """The producer's last batches, the oldest first."""
        kept = self.kept
        return [BatchMetadata(*kept[start : start + 4]) for start in range(0, len(kept), 4)]

    @property
    def last_sequence(self) -> int:
        return self.kept[LAST_SEQUENCE] if self.kept else NO_SEQUENCE

    def add(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Remember one more batch."""
        self.kept = (*self.kept[-KEPT_BEFORE_MAX:], last_sequence, last_offset, offset_delta, timestamp)


class CompletedTxn(NamedTuple):
    """A transaction that its marker, at `last_offset`, has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    committed: bool


class Producers:
    """The producers of one log, by id."""

    __slots__ = ("_ongoing", "_unreplicated", "by_id", "guards", "map_end_offset")

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerEntry] = {}
        self.guards = VerificationGuards()
        # First offset -> producer id, in the order of offsets, as transactions begin at the end of the log.
        self._ongoing: dict[int, int] = {}
        # First offset -> offset of the marker, for transactions whose marker may be above the high watermark.
        self._unreplicated: dict[int, int] = {}
        self.map_end_offset = 0

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(list(self.by_id.values()))

    def __len__(self) -> int:
        return len(self.by_id)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self.by_id.get(producer_id)

    def check(self, producer_id: int, epoch: int, base_sequence: int, offset_delta: int) -> BatchMetadata | None:
        """Check whether this batch of a client may be appended. None: yes; otherwise the same batch as it was written
        before."""
        entry = self.by_id.get(producer_id)
        if entry is None:
            return None  # a new producer, or one we have forgotten: KIP-360 lets it start anywhere
        if epoch != entry.epoch:
            _check_new_epoch(entry, epoch, base_sequence)
            return None
        kept = entry.kept
        last_sequence = kept[LAST_SEQUENCE] if kept else NO_SEQUENCE
        if base_sequence == last_sequence + 1:
            return None
        return _duplicate_or_raise(entry, base_sequence, (base_sequence + offset_delta) & SEQUENCE_MASK)

    def check_outside(self, producer_id: int) -> None:
        """Raise ApiError unless this producer may write a batch that is of no transaction."""
        entry = self.by_id.get(producer_id)
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open since offset {entry.current_txn_first_offset}",
            )

    def check_transactional(
        self, producer_id: int, epoch: int, base_sequence: int, offset_delta: int, guard: VerificationGuard | None
    ) -> BatchMetadata | None:
        """Check a batch of a transaction (KIP-890), as `check` does. A coordinator's batch has no sequence.

        Kafka's order: a batch that is there already, a stale epoch (from which the producer can recover), a transaction
        that is not open here, and then the sequence.
        """
        entry = self.by_id.get(producer_id)
        if not self.is_open(producer_id, epoch):
            if entry is not None and entry.epoch == epoch:
                duplicate = _written_before(entry, base_sequence, offset_delta)
                if duplicate is not None:
                    return duplicate
            if entry is not None and epoch < entry.epoch:
                raise _stale_epoch(entry, epoch)
            self.guards.check(producer_id, base_sequence, guard, is_known=entry is not None)
        return None if base_sequence < 0 else self.check(producer_id, epoch, base_sequence, offset_delta)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this producer and epoch is open."""
        entry = self.by_id.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset != NO_OFFSET

    def begin_verification(
        self, producer_id: int, epoch: int, base_sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard | None:
        """The guard with which the first batch of a transaction is to be appended; None: there is nothing to ask, the
        transaction is open, or its producer is known to be fenced and the batch is refused."""
        entry = self.by_id.get(producer_id)
        if self.is_open(producer_id, epoch) or (entry is not None and epoch < entry.epoch):
            return None
        if entry is not None and entry.epoch == epoch and entry.kept:
            # A batch that is written already may come again late, and is told so. It does not wait for its turn.
            next_sequence = (entry.last_sequence + 1) & SEQUENCE_MASK
            if _is_before(base_sequence, next_sequence):
                base_sequence = next_sequence
        return self.guards.begin(producer_id, epoch, base_sequence, now_ms, bumps_epoch=bumps_epoch)

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Take in a batch of records that was written at `base_offset`."""
        _, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
        entry = self.by_id.get(producer_id)
        if entry is None:
            entry = self._new_entry(producer_id, epoch, now_ms)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.kept = ()
        last_sequence = (sequence + delta) & SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        entry.add(last_sequence, base_offset + delta, delta, timestamp)
        entry.rows = None
        entry.last_timestamp = timestamp
        entry.last_seen_ms = now_ms
        if attributes & TRANSACTIONAL_FLAG:
            if self.guards:
                self.guards.written(producer_id)
            if entry.current_txn_first_offset == NO_OFFSET:
                entry.current_txn_first_offset = base_offset
                self._ongoing[base_offset] = producer_id

    def check_marker(self, producer_id: int, epoch: int, marker: EndTxnMarker, transaction_version: int = 0) -> None:
        """Raise ApiError unless the coordinator may end this producer's transaction.

        From transaction version 2 on a marker has the epoch of the next transaction, and so must be above that of
        the one it ends (KIP-1228): one that comes late cannot end the next. With nothing open it is the same marker
        again, whose answer was lost (KAFKA-19999).
        """
        entry = self.by_id.get(producer_id)
        lowest, coordinator_epoch = 0, NO_COORDINATOR_EPOCH
        if entry is not None:
            lowest, coordinator_epoch = entry.epoch, entry.coordinator_epoch
        is_open = entry is not None and entry.current_txn_first_offset != NO_OFFSET
        if epoch < lowest or (is_open and transaction_version >= TRANSACTION_BUMPS_EPOCH and epoch == lowest):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} is at epoch {lowest}, the marker is of epoch {epoch}",
            )
        if marker.coordinator_epoch < coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {coordinator_epoch}",
            )

    def complete(
        self,
        header: BatchHeader,
        base_offset: int,
        marker: EndTxnMarker,
        now_ms: int,
        transaction_version: int = 0,
    ) -> CompletedTxn | None:
        """Take in the marker that was written at `base_offset`; returns the transaction that it ended, if one was
        open."""
        if self.guards:
            self.guards.ended(header.producer_id, header.producer_epoch, transaction_version)
        entry = self.by_id.get(header.producer_id)
        if entry is None:
            entry = self._new_entry(header.producer_id, header.producer_epoch, now_ms)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.kept = ()
        entry.rows = None
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.last_seen_ms = now_ms
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated[first_offset] = base_offset
        return CompletedTxn(entry.producer_id, first_offset, base_offset, marker.committed)

    def aborted(self, completed: CompletedTxn) -> AbortedTxn:
        """The index entry for an aborted transaction; others may still be open before its marker."""
        stable = next(iter(self._ongoing), completed.last_offset + 1)
        return AbortedTxn(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            min(stable, completed.last_offset + 1),
        )

    def replay(self, header: BatchHeader, read_batch: Callable[[], Buffer], now_ms: int) -> AbortedTxn | None:
        """Take in a batch that is in the log, without checking it; returns the transaction that it aborted."""
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.update(header, header.base_offset, now_ms)
            return None
        if header.record_count == 0:
            return None  # compaction has emptied it: nothing is left of its transaction
        try:
            marker = read_end_txn_marker(read_batch())
        except RecordFormatError as error:
            log.warning("the control batch at offset %d is ignored: %s", header.base_offset, error)
            return None
        if marker is None:
            return None
        completed = self.complete(header, header.base_offset, marker, now_ms)
        return None if completed is None or completed.committed else self.aborted(completed)

    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    def first_open_producer(self) -> int | None:
        """The producer of the oldest open transaction."""
        return next(iter(self._ongoing.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return None  # nearly always: every fetch asks
        self.replicated_to(high_watermark)
        first_open = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return first_open
        return min(self._unreplicated) if first_open is None else min(first_open, *self._unreplicated)

    def replicated_to(self, high_watermark: int) -> None:
        """Let go of the transactions whose marker every in-sync replica has. The high watermark only rises."""
        if self._unreplicated:
            for first_offset in [first for first, marker in self._unreplicated.items() if marker < high_watermark]:
                del self._unreplicated[first_offset]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for long, unless they have an open transaction; returns their
        number."""
        expired = [
            entry.producer_id
            for entry in self.by_id.values()
            if entry.current_txn_first_offset == NO_OFFSET and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        self.guards.expire(now_ms, expiration_ms)
        return len(expired)

    def _new_entry(self, producer_id: int, epoch: int, now_ms: int) -> ProducerEntry:
        if len(self.by_id) >= PRODUCERS_MAX:
            self._forget_idle(PRODUCERS_FORGOTTEN)
        entry = self.by_id[producer_id] = ProducerEntry(producer_id, epoch, now_ms)
        return entry

    def _forget_idle(self, count: int) -> None:
        """Forget the producers that have been silent for the longest, unless they have an open transaction."""
        idle = (entry for entry in self.by_id.values() if entry.current_txn_first_offset == NO_OFFSET)
        forgotten = nsmallest(count, idle, key=lambda entry: entry.last_seen_ms)
        for entry in forgotten:
            del self.by_id[entry.producer_id]
        log.info("expired %d idle producer ids: a partition keeps %d", len(forgotten), PRODUCERS_MAX)

    def drop_below(self, log_start_offset: int) -> None:
        """Forget transactions that are below the log start offset as a whole, ended or not."""
        for first in [first for first, marker in self._unreplicated.items() if marker < log_start_offset]:
            del self._unreplicated[first]
        for first, producer_id in [each for each in self._ongoing.items() if each[0] < log_start_offset]:
            entry = self.by_id[producer_id]
            if not entry.batches or entry.batches[-1].last_offset < log_start_offset:
                entry.current_txn_first_offset = NO_OFFSET
                entry.rows = None
                del self._ongoing[first]

    def load(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace everything with the content of a snapshot."""
        self.by_id = {entry.producer_id: entry for entry in entries}
        self.guards.clear()
        self._unreplicated = {}
        self._ongoing = {
            entry.current_txn_first_offset: entry.producer_id
            for entry in sorted(self.by_id.values(), key=lambda entry: entry.current_txn_first_offset)
            if entry.current_txn_first_offset != NO_OFFSET
        }


def _check_new_epoch(entry: ProducerEntry, epoch: int, base_sequence: int) -> None:
    if epoch < entry.epoch:
        raise _stale_epoch(entry, epoch)
    if base_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
        raise _out_of_order(entry, base_sequence, "a new epoch starts with sequence 0")


def _stale_epoch(entry: ProducerEntry, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {entry.producer_id} is at epoch {entry.epoch}, the batch is of epoch {epoch}",
    )


def _written_before(entry: ProducerEntry, base_sequence: int, offset_delta: int) -> BatchMetadata | None:
    """The same batch as it was written before, if it was."""
    last_sequence = (base_sequence + offset_delta) & SEQUENCE_MASK
    for batch in entry.batches if base_sequence >= 0 else ():
        if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
            return batch
    return None


def _duplicate_or_raise(entry: ProducerEntry, base_sequence: int, last_sequence: int) -> BatchMetadata | None:
    """Handle the rare cases: sequence numbers that wrap, batches sent again, gaps."""
    batches = entry.batches
    if not batches:
        raise _out_of_order(entry, base_sequence, "an epoch starts with sequence 0")
    if base_sequence == (batches[-1].last_sequence + 1) & SEQUENCE_MASK:
        return None
    duplicate = _written_before(entry, base_sequence, (last_sequence - base_sequence) & SEQUENCE_MASK)
    if duplicate is not None:
        return duplicate
    if _is_before(base_sequence, batches[0].first_sequence) and _is_before(last_sequence, batches[0].first_sequence):
        # Written long ago and its offset forgotten; clients take this code as success without an offset.
        raise ApiError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"producer {entry.producer_id} is at sequence {entry.last_sequence}, {base_sequence} is written",
        )
    raise _out_of_order(entry, base_sequence, f"the last one was {entry.last_sequence}")


def _is_before(sequence: int, other: int) -> bool:
    """Whether a sequence is before another by the shorter way round a circle of 2^31 numbers."""
    return 0 < (other - sequence) & SEQUENCE_MASK < 1 << 30


def _out_of_order(entry: ProducerEntry, base_sequence: int, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {entry.producer_id}, epoch {entry.epoch}: sequence {base_sequence} is out of order, {why}",
    )
