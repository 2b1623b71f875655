"""Record batches of format v2 (KIP-98), by their 61-byte header.

    0  base offset, batch length, partition leader epoch, magic   -- the leader may rewrite these: outside the CRC
   17  crc (CRC-32C of everything behind it)
   21  attributes, last offset delta, base and max timestamp, producer id and epoch, base sequence, record count
   61  the records, compressed together

The law: a batch is stored and served as it was sent. Records are opened only where a reader of them asks for it.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from moldau.core.files import Buffer
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from moldau.records.crc import crc32c
from moldau.records.record import Header, Record, RecordFormatError, decode_records, encode_records

__all__ = [
    "BATCH_HEADER_BYTES",
    "BODY_START",
    "BatchHeader",
    "CorruptBatchError",
    "EndTxnMarker",
    "Header",
    "Record",
    "build_batch",
    "build_end_txn_marker",
    "check_batch",
    "iter_records",
    "producer_at",
    "read_end_txn_marker",
    "read_header",
    "read_sent_batches",
    "records_data",
    "renumber",
    "reseal",
    "split_batches",
    "stamp",
    "stamp_into",
]

MAGIC_V2 = 2
BATCH_HEADER_BYTES = 61
BODY_START = 16  # what a leader rewrites lies before it, what the producer sent is kept from here on
LOG_OVERHEAD = 12  # base offset and batch length: what batch length does not count
MAGIC_POSITION = 16
CRC_START = 21
ATTRIBUTES_POSITION = 22  # of their lower byte, which has them all
PRODUCER_POSITION = 43
BATCH_LENGTH_MIN = BATCH_HEADER_BYTES - LOG_OVERHEAD

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

SEQUENCE_MASK = 0x7FFFFFFF
HEADER_LAYOUT = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qii")
_MAGIC_AND_CRC = Struct(">bI")
_CHECKSUMMED = Struct(">hiqqqhii")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")

_unpack_header = HEADER_LAYOUT.unpack_from
_new_tuple = tuple.__new__

producer_at = Struct(">qh").unpack_from
"""Producer id and epoch, at PRODUCER_POSITION."""

stamp = _PREFIX.pack
"""`stamp(base_offset, batch_length, leader_epoch)`: the 16 bytes that go in front of a batch's body."""

stamp_into = _PREFIX.pack_into
"""`stamp_into(buffer, position, base_offset, batch_length, leader_epoch)`: the same over a batch that was sent."""


class CorruptBatchError(ApiError):
    """Error: the bytes are not those that were sent. CORRUPT_MESSAGE, which producers retry."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of its bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """One past the last offset."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the compression codec: 0-4 are known (`Codec`), 5-7 can occur in bad input."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time at which tombstones may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK


class EndTxnMarker(NamedTuple):
    """Marker that a transaction coordinator writes into every partition of a transaction at its end."""

    committed: bool
    coordinator_epoch: int


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`; `check_batch` says whether the rest is there and right."""
    if len(buffer) - position < BATCH_HEADER_BYTES:
        raise CorruptBatchError(f"{len(buffer) - position} bytes are too few for the header of a batch")
    header = _new_tuple(BatchHeader, _unpack_header(buffer, position))
    if header[3] != MAGIC_V2:
        raise CorruptBatchError(f"magic {header[3]} is not that of a v2 batch")
    if header[1] < BATCH_LENGTH_MIN:
        raise CorruptBatchError(f"batch length {header[1]} is less than the header's own {BATCH_LENGTH_MIN}")
    return header


def check_batch(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raise CorruptBatchError unless the batch at `position` is there to its end and its checksum is right."""
    end = position + LOG_OVERHEAD + header.batch_length
    if end > len(buffer):
        raise CorruptBatchError(f"a batch of {header.size} bytes is cut off after {len(buffer) - position}")
    actual = crc32c(memoryview(buffer)[position + CRC_START : end])
    if actual != header.crc:
        raise CorruptBatchError(f"checksum is {actual:08x}, the batch says {header.crc:08x}")


def split_batches(buffer: Buffer, *, partial_end: bool = False) -> list[tuple[BatchHeader, memoryview]]:
    """All batches of a region, each checked. With `partial_end` a last batch that is cut off is left out."""
    view = memoryview(buffer)
    position = 0
    batches: list[tuple[BatchHeader, memoryview]] = []
    while position < len(view):
        if partial_end and is_cut_off(view, position):
            break
        header = read_header(view, position)
        check_batch(view, header, position)
        batches.append((header, view[position : position + header.size]))
        position += header.size
    return batches


def read_sent_batches(buffer: Buffer, next_offset: int) -> tuple[list[BatchHeader], int]:
    """The headers of batches that a leader sent to a follower with the log end offset `next_offset`, and their size in
    bytes.

    Every batch is checked, and the order of all. A batch that is cut off at the end is left out.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    headers: list[BatchHeader] = []
    while end - position >= BATCH_HEADER_BYTES:
        header = _new_tuple(BatchHeader, _unpack_header(view, position))
        base_offset, length, _, magic, crc, _, delta, _, _, _, _, _, _ = header
        stop = position + LOG_OVERHEAD + length
        if stop > end:
            break
        if magic != MAGIC_V2 or length < BATCH_LENGTH_MIN:
            read_header(view, position)
        if crc32c(view[position + CRC_START : stop]) != crc:
            check_batch(view, header, position)
        if base_offset < next_offset or delta < 0:
            reason = f"the batch at offset {base_offset} was sent, {next_offset} is due"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        next_offset = base_offset + delta + 1
        headers.append(header)
        position = stop
    if position < end and not is_cut_off(view, position):
        read_header(view, position)
    return headers, position


def is_cut_off(buffer: Buffer, position: int) -> bool:
    """Whether the buffer ends inside the batch at `position`."""
    left = len(buffer) - position
    if left < LOG_OVERHEAD:
        return True
    length = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
    return LOG_OVERHEAD + length > left


def records_data(batch: Buffer, header: BatchHeader, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The records of a batch, decompressed; never more than `limit` bytes."""
    section = memoryview(batch)[BATCH_HEADER_BYTES : header.size]
    if header.codec == Codec.NONE:
        return section
    return decompress(header.codec, section, limit=limit)


def iter_records(batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of one batch. The caller checks the checksum (`check_batch`)."""
    header = read_header(batch)
    data = records_data(batch, header, limit=limit)
    records = decode_records(data, header.record_count, header.base_offset, header.base_timestamp)
    if not header.is_log_append_time:
        return records
    return (record._replace(timestamp=header.max_timestamp) for record in records)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: int = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
    log_append_time_ms: int | None = None,
) -> bytes:
    """One batch of `records`, whose offsets rise from `base_offset` (default: the first record's), gaps allowed."""
    invariant(len(records) > 0, "a batch needs a record")
    base_offset = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    data = encode_records(records, base_offset, base_timestamp)
    attributes = int(codec)
    attributes |= TRANSACTIONAL_FLAG if is_transactional else 0
    attributes |= CONTROL_FLAG if is_control else 0
    attributes |= LOG_APPEND_TIME_FLAG if log_append_time_ms is not None else 0
    max_timestamp = max(r.timestamp for r in records) if log_append_time_ms is None else log_append_time_ms
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC_V2, 0, attributes, records[-1].offset - base_offset, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip  # one line per field would hide that this is the order of the bytes
    return reseal(header, compress(codec, data))[1]


def renumber(records: Sequence[Record]) -> list[Record]:
    """The records with offsets 0, 1, 2 ..., as a producer sends them."""
    return [record._replace(offset=index) for index, record in enumerate(records)]


def reseal(header: BatchHeader, section: Buffer) -> tuple[BatchHeader, bytes]:
    """A batch of `header` and the (compressed) record `section`, with length and checksum made to fit them."""
    checksummed = _CHECKSUMMED.pack(*header[5:])
    crc = crc32c(section, crc32c(checksummed))
    header = header._replace(batch_length=BATCH_LENGTH_MIN + len(section), crc=crc)
    prefix = stamp(header.base_offset, header.batch_length, header.partition_leader_epoch)
    return header, b"".join((prefix, _MAGIC_AND_CRC.pack(header.magic, crc), checksummed, section))


def build_end_txn_marker(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0
) -> bytes:
    """The control batch that ends a transaction in one partition."""
    key = _MARKER_KEY.pack(0, 1 if marker.committed else 0)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_txn_marker(batch: Buffer) -> EndTxnMarker | None:
    """The marker in a control batch; None for control records of another kind, which readers must skip."""
    record = next(iter_records(batch))
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise RecordFormatError("a control record has no type")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise RecordFormatError("the marker at the end of a transaction has no coordinator epoch")
    return EndTxnMarker(kind == 1, _MARKER_VALUE.unpack_from(record.value)[1])
