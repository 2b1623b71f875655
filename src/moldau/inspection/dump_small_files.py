"""Dump of the small files of a data directory: snapshots, aborted transactions, checkpoints, properties."""

from collections.abc import Iterator
from struct import Struct

from moldau.core.properties import parse_properties
from moldau.inspection.faults import Faults
from moldau.inspection.reading import content
from moldau.inspection.rows import OptionalLong, Pairs, Row
from moldau.log.checkpoints import CheckpointError, parse_lines
from moldau.records.batch import SEQUENCE_MASK
from moldau.records.crc import crc32c

ABORTED = Struct(">hqqqq")
SNAPSHOT_HEAD = Struct(">hIi")
SNAPSHOT_ROW = Struct(">qhiqiqiq")
SNAPSHOT_CRC_START = 6

CHECKPOINT_COLUMNS = {
    "leader-epoch-checkpoint": ("epoch", "startOffset"),
    "recovery-point-offset-checkpoint": ("topic", "partition", "offset"),
    "replication-offset-checkpoint": ("topic", "partition", "offset"),
    "log-start-offset-checkpoint": ("topic", "partition", "offset"),
    "cleaner-offset-checkpoint": ("topic", "partition", "offset"),
}
"""Names of the fields in each line, by the name of the file."""
PROPERTY_FILES = ("meta.properties", "metadata.properties", "cluster.properties", "stray.properties")
TOPIC_ID_FILE = "partition.metadata"


def dump_txn_index(path: str, faults: Faults) -> Iterator[Row]:
    """Rows of a `.txnindex` file."""
    data = content(path)
    if len(data) % ABORTED.size:
        faults.errors.append(f"{path} ends inside an entry: {len(data)} bytes are no multiple of {ABORTED.size}")
    whole = len(data) // ABORTED.size * ABORTED.size
    for version, producer_id, first, last, stable in ABORTED.iter_unpack(data[:whole]):
        fields = {"version": version, "producerId": producer_id, "firstOffset": first, "lastOffset": last}
        yield Pairs("abortedTransaction", {**fields, "lastStableOffset": stable})


def dump_producers(path: str, faults: Faults) -> Iterator[Row]:
    """Rows of a `.snapshot` file: producers as a log of this length knew them."""
    data = content(path)
    if len(data) < SNAPSHOT_HEAD.size:
        faults.errors.append(f"{path} is no snapshot of producers: {len(data)} bytes")
        return
    version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
    if version != 1:
        faults.errors.append(f"Snapshot contained an unknown file version {version}: {path}")
        return
    actual = crc32c(memoryview(data)[SNAPSHOT_CRC_START:])
    if actual != crc:
        faults.errors.append(f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {crc}. Computed crc: {actual}")
        return
    if SNAPSHOT_HEAD.size + count * SNAPSHOT_ROW.size != len(data):
        faults.errors.append(f"{path} has {len(data)} bytes for {count} producers")
        return
    for row in SNAPSHOT_ROW.iter_unpack(data[SNAPSHOT_HEAD.size :]):
        yield _producer(row)


def _producer(row: tuple[int, ...]) -> Pairs:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = row
    fields: dict[str, object] = {
        "producerId": producer_id,
        "producerEpoch": epoch,
        "coordinatorEpoch": coordinator_epoch,
        "currentTxnFirstOffset": OptionalLong(txn_first_offset if txn_first_offset >= 0 else None),
        "lastTimestamp": timestamp,
    }
    if last_offset >= 0:
        fields |= {
            "firstSequence": (last_sequence - delta) & SEQUENCE_MASK,
            "lastSequence": last_sequence,
            "lastOffset": last_offset,
            "offsetDelta": delta,
            "timestamp": timestamp,
        }
    return Pairs("producer", fields)


def dump_checkpoint(path: str, name: str, faults: Faults) -> Iterator[Row]:
    """Rows of a checkpoint file."""
    data = content(path)
    columns = CHECKPOINT_COLUMNS[name]
    try:
        rows = parse_lines(data) if data else []
        for row in rows:
            yield Pairs(
                "checkpoint",
                {column: text if column == "topic" else int(text) for column, text in zip(columns, row, strict=True)},
            )
    except CheckpointError as error:
        faults.errors.append(f"{path} is no checkpoint: {error}")
    except ValueError:
        faults.errors.append(f"{path} is no checkpoint: a line has not the fields {', '.join(columns)}")


def dump_properties(path: str, faults: Faults) -> Iterator[Row]:
    """Rows of a file of properties, or of `partition.metadata`."""
    data = content(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        faults.errors.append(f"{path} is not text: {error.reason} at {error.start}")
        return
    if path.endswith(TOPIC_ID_FILE):
        text = text.replace(": ", "=")
    for name, value in parse_properties(text).items():
        yield Pairs("property", {name: value})
