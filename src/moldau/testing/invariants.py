"""Invariants of a cluster that hold whatever was done to it: functions from observations to violations.

Law: each returns one line per violation and nothing if there is none; none of them knows how the cluster was hurt. The
observations of clients and watchers are a history; the logs of a broker are read from its directory once it has
stopped. A record carries its sender and its number there (`label`): so it is recognised wherever it turns up.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.core.ids import TopicPartition
from moldau.log.checkpoints import parse_lines
from moldau.records.batch import iter_records, read_end_txn_marker, read_header, split_batches

NO_LEADER = -1
EXAMPLES_MAX = 5
"""Lines for one kind of violation: a lost log is not a thousand lines."""


class Sent(NamedTuple):
    """A record as its producer remembers it. `offset` is None where the producer never learned the outcome: the
    record may be there, or not, but not twice."""

    partition: TopicPartition
    producer: str
    number: int
    offset: int | None


class Kept(NamedTuple):
    """A record as it was read, from a log or by a consumer."""

    partition: TopicPartition
    offset: int
    producer: str
    number: int
    epoch: int = -1
    """The epoch of the producer, if the record was read from a log."""


class Batch(NamedTuple):
    """A batch of a log, with offsets from `base_offset` up to, but not including, `next_offset`."""

    base_offset: int
    next_offset: int
    data: bytes


class Written(NamedTuple):
    """A record of a transaction in a log."""

    offset: int
    value: bytes


class Resolved(NamedTuple):
    """Records of a log by the end of their transaction; those outside of transactions count as committed."""

    committed: list[Written]
    aborted: list[Written]
    open: dict[int, list[Written]]
    """Records of transactions without an end, by producer id."""


class StateSeen(NamedTuple):
    """A partition's state as a watcher of the store saw it."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class Wait(NamedTuple):
    """Time that something took to work again; None: it never did."""

    what: str
    seconds: float | None


def label(producer: str, number: int) -> bytes:
    """The start of a record's value; a space and anything may follow."""
    return f"{producer}/{number}".encode()


def read_label(value: bytes) -> tuple[str, int]:
    """Producer and number; raises ValueError for a value that no test wrote."""
    producer, _, number = value.partition(b" ")[0].rpartition(b"/")
    return producer.decode(), int(number)


# --- what a stopped broker kept


def read_log(directory: Path) -> list[Batch]:
    """All batches of a partition's directory, each with a right checksum; a torn end, as a crash leaves it, is left
    out."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    return [
        Batch(header.base_offset, header.next_offset, bytes(view))
        for header, view in split_batches(data, partial_end=True)
    ]


def read_high_watermarks(directory: Path) -> dict[TopicPartition, int]:
    """The high watermarks that the broker of this data directory checkpointed last."""
    rows = parse_lines((directory / "replication-offset-checkpoint").read_bytes())
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def records_of(partition: TopicPartition, batches: Iterable[Batch]) -> Iterator[Kept]:
    for batch in batches:
        epoch = read_header(batch.data).producer_epoch
        for record in iter_records(batch.data):
            yield Kept(partition, record.offset, *read_label(record.value or b""), epoch)


def resolve(batches: Iterable[Batch]) -> Resolved:
    """The records of a whole log, as the markers in it tell what became of them."""
    found = Resolved([], [], {})
    for batch in batches:
        header = read_header(batch.data)
        if header.is_control:
            marker = read_end_txn_marker(batch.data)
            if marker is not None:
                ended = found.committed if marker.committed else found.aborted
                ended += found.open.pop(header.producer_id, [])
            continue
        records = [Written(record.offset, record.value or b"") for record in iter_records(batch.data)]
        if header.is_transactional:
            found.open.setdefault(header.producer_id, []).extend(records)
        else:
            found.committed.extend(records)
    found.committed.sort()
    return found


# --- the invariants


def lost(sent: Iterable[Sent], log: Iterable[Kept]) -> list[str]:
    """Acknowledged records that are not in the log at the offset of their acknowledgement."""
    kept = {(record.partition, record.offset): record for record in log}
    return _some(
        f"{_name(record)} was acknowledged at {record.partition}@{record.offset}, where the log has "
        + _name(kept.get((record.partition, record.offset)))
        for record in sent
        if record.offset is not None
        and not _is_same(kept.get((record.partition, record.offset)), record.producer, record.number)
    )


def duplicated(log: Iterable[Kept]) -> list[str]:
    """Records that are in a partition more than once, in one epoch of their producer: a broker must recognise them."""
    counts = Counter((record.partition, record.producer, record.number, record.epoch) for record in log)
    return _some(
        f"{producer}/{number} is in {partition} {count} times"
        for (partition, producer, number, _), count in counts.items()
        if count > 1
    )


def sent_again(log: Iterable[Kept]) -> list[str]:
    """Records that their producer sent again in a new epoch, though they were there: no broker can recognise them then.

    librdkafka may do so when a partition's leader changes (its issue 4953).
    """
    return [
        f"{_name(record)} was sent again in epoch {record.epoch}"
        for is_first, record in _first_copies(log)
        if not is_first
    ]


def reordered(log: Iterable[Kept]) -> list[str]:
    """Records of one producer that stand behind later ones of the same producer in a partition."""
    last: dict[tuple[TopicPartition, str], int] = {}
    wrong = []
    for is_first, record in _first_copies(log):
        key = (record.partition, record.producer)
        if is_first and record.number < last.get(key, -1):
            wrong.append(f"{_name(record)} at {record.partition}@{record.offset} stands behind number {last[key]}")
        last[key] = max(record.number, last.get(key, -1))
    return _some(wrong)


def _first_copies(log: Iterable[Kept]) -> Iterator[tuple[bool, Kept]]:
    """Each record, and whether it is the first of its copies that were sent in different epochs."""
    epochs: dict[tuple[TopicPartition, str, int], int] = {}
    for record in log:
        first = epochs.setdefault((record.partition, record.producer, record.number), record.epoch)
        yield first == record.epoch, record


def vanished(seen: Iterable[Kept], log: Iterable[Kept]) -> list[str]:
    """Records that a consumer was given and that are not in the log at that offset."""
    kept = {(record.partition, record.offset): record for record in log}
    return _some(
        f"{_name(record)} was read at {record.partition}@{record.offset}, where the log has "
        + _name(kept.get((record.partition, record.offset)))
        for record in seen
        if not _is_same(kept.get((record.partition, record.offset)), record.producer, record.number)
    )


def unread(sent: Iterable[Sent], seen: Iterable[Kept]) -> list[str]:
    """Acknowledged records that were never given to a consumer that read everything."""
    read = {(record.partition, record.offset) for record in seen}
    return _some(
        f"{_name(record)} at {record.partition}@{record.offset} was never read"
        for record in sent
        if record.offset is not None and (record.partition, record.offset) not in read
    )


def read_out_of_order(seen: Iterable[Kept]) -> list[str]:
    """Records that one reader, which never went back, was given in another order than that of their offsets."""
    last: dict[TopicPartition, int] = {}
    wrong = []
    for record in seen:
        if record.offset <= last.get(record.partition, -1):
            wrong.append(f"{record.partition}@{record.offset} was read after @{last[record.partition]}")
        last[record.partition] = record.offset
    return _some(wrong)


def different_replicas(
    partition: TopicPartition, copies: Mapping[int, Sequence[Batch]], high_watermark: int
) -> list[str]:
    """Replicas whose bytes below the high watermark differ. Their first offsets may differ: each has its own
    retention."""
    filled = [batches for batches in copies.values() if batches]
    start = max((batches[0].base_offset for batches in filled), default=0)
    parts = {
        broker: [batch for batch in batches if batch.base_offset >= start and batch.next_offset <= high_watermark]
        for broker, batches in copies.items()
    }
    if not parts:
        return []
    first, *others = parts
    return [
        f"{partition}: brokers {first} and {other} differ {_first_difference(parts[first], parts[other])}"
        for other in others
        if parts[first] != parts[other]
    ]


def several_leaders(states: Iterable[StateSeen]) -> list[str]:
    """Epochs of a partition in which more than one broker led."""
    leaders: dict[tuple[TopicPartition, int], set[int]] = defaultdict(set)
    for state in states:
        if state.leader != NO_LEADER:
            leaders[state.partition, state.leader_epoch].add(state.leader)
    return _some(
        f"{partition} was led by {sorted(brokers)} in epoch {epoch}"
        for (partition, epoch), brokers in leaders.items()
        if len(brokers) > 1
    )


def impossible_states(states: Iterable[StateSeen]) -> list[str]:
    """States that may never be in the store: an epoch that went back, a leader out of its ISR, an empty ISR."""
    epochs: dict[TopicPartition, int] = {}
    wrong = []
    for state in states:
        if state.leader_epoch < epochs.get(state.partition, 0):
            wrong.append(f"{state} came after epoch {epochs[state.partition]}")
        if not state.isr or (state.leader != NO_LEADER and state.leader not in state.isr):
            wrong.append(f"{state} has no leader among its ISR")
        epochs[state.partition] = state.leader_epoch
    return _some(wrong)


def slow(waits: Iterable[Wait], bound_s: float) -> list[str]:
    """Parts of the cluster that did not work again in time."""
    return _some(
        f"{wait.what} took {'for ever' if wait.seconds is None else f'{wait.seconds:.1f} s'}, not {bound_s:g} s"
        for wait in waits
        if wait.seconds is None or wait.seconds > bound_s
    )


def _is_same(record: Kept | None, producer: str, number: int) -> bool:
    return record is not None and (record.producer, record.number) == (producer, number)


def _name(record: Kept | Sent | None) -> str:
    return "nothing" if record is None else f"{record.producer}/{record.number}"


def _first_difference(one: Sequence[Batch], other: Sequence[Batch]) -> str:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return f"in the batch at {mine.base_offset}"
    shorter = min(one, other, key=len)
    return f"in length: one ends at {shorter[-1].next_offset if shorter else 'its start'}"


def _some(violations: Iterable[str]) -> list[str]:
    found = list(violations)
    return found if len(found) <= EXAMPLES_MAX else [*found[:EXAMPLES_MAX], f"... and {len(found) - EXAMPLES_MAX} more"]
