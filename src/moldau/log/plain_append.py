"""A plain batch into a log: one function for what `Log.append_as_leader` does with a batch that needs nothing else.

The law: it leaves the log, its last segment and its producers as that would, or does not touch them. It knows their
insides because a call for each would cost a tenth of an append; nobody outside of this package does.
"""

from struct import Struct

from moldau.log.log import Log
from moldau.log.producers import KEPT_BEFORE_MAX, LAST_SEQUENCE, NO_OFFSET
from moldau.log.segment import UNSETTLED_MAX
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    BODY_START,
    CODEC_MASK,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC_V2,
    SEQUENCE_MASK,
    TRANSACTIONAL_FLAG,
    stamp,
    stamp_into,
)
from moldau.records.compression import Codec
from moldau.records.crc import crc32c
from moldau.records.validate import COMPRESSED_RECORDS_MAX, RECORD_BYTES_MIN

_PLAIN_ATTRIBUTES_MAX = int(Codec.ZSTD)
"""A codec, and nothing else: no transaction, no marker, the producer's own time."""

_OF_TRANSACTIONS = range(TRANSACTIONAL_FLAG, TRANSACTIONAL_FLAG + Codec.ZSTD + 1)
"""The same of a transaction."""

_unpack_header = Struct(">qi4xBIHIqqqhii").unpack_from
"""Header of a batch without the leader epoch. Fields that must not be negative are read as unsigned: a negative one is
too large."""


Terms = tuple[int, int, int]
"""Epoch of a leader, and how many milliseconds before and after now the times of a batch may be."""


def append_plain(
    log: Log, frame: memoryview, start: int, stop: int, size: int, terms: Terms, now_ms: int
) -> int | None:
    """Append the batch that is `frame[start:stop]`, as a leader, and return its offset; None: nothing was done, as
    something about the batch is not plain, the segment has no room for sure, or the batch is not the next one of a
    producer that is known, or is of a transaction that is not open here.

    There are bytes for a header in its `size`. A frame that can be written to gets the offset in its place. Raises
    ApiError if the disk does not take it.
    """
    (
        sent_offset, length, magic, crc, attributes, delta, base_timestamp, timestamp,
        producer_id, producer_epoch, sequence, count,
    ) = _unpack_header(frame, start)  # fmt: skip  # the order of the bytes
    leader_epoch, before_max_ms, after_max_ms = terms
    segment, base_offset = log.segments.active, log.log_end_offset
    file, last_offset = segment.open_file, base_offset + delta
    config, size_max, offset_max, timestamp_max = segment.room
    if (
        file is None
        or length + LOG_OVERHEAD != size
        or magic != MAGIC_V2
        or sent_offset
        or delta + 1 != count
        or count
        > (COMPRESSED_RECORDS_MAX if attributes & CODEC_MASK else (size - BATCH_HEADER_BYTES) // RECORD_BYTES_MIN)
        or (attributes > _PLAIN_ATTRIBUTES_MAX and attributes not in _OF_TRANSACTIONS)
        or timestamp - now_ms > after_max_ms
        or now_ms - base_timestamp > before_max_ms
        or config is not log.config
        or segment.size + size > size_max
        or last_offset > offset_max
        or timestamp > timestamp_max
        or log.failure is not None
        or crc32c(frame[start + CRC_START : stop]) != crc
    ):
        return None
    entry, is_transactional = None, attributes > _PLAIN_ATTRIBUTES_MAX
    if producer_id >= 0:
        entry = log.producers.by_id.get(producer_id)
        if entry is None or entry.epoch != producer_epoch:
            return None
        if (entry.current_txn_first_offset != NO_OFFSET) is not is_transactional:
            return None  # a plain batch inside a transaction is refused, and so is one outside: the long way says how
        kept = entry.kept
        if not kept or kept[LAST_SEQUENCE] + 1 != sequence:
            return None
    elif is_transactional:
        return None
    try:
        if frame.readonly:
            chunks = (stamp(base_offset, length, leader_epoch), frame[start + BODY_START : stop])
            position = file.append(chunks, size)
        else:
            stamp_into(frame, start, base_offset, length, leader_epoch)
            position = file.append_one(frame[start:stop], size)
    except OSError as error:
        raise log.io_error(error) from error
    segment.size = position + size
    unsettled = segment.unsettled
    unsettled.append((base_offset, last_offset, timestamp, position, size))
    log.log_end_offset = last_offset + 1
    if entry is not None:
        last_sequence = (sequence + delta) & SEQUENCE_MASK
        entry.kept = kept[-KEPT_BEFORE_MAX:] + (last_sequence, last_offset, delta, timestamp)  # noqa: RUF005  twice as fast
        entry.rows = None
        entry.last_timestamp = timestamp
        entry.last_seen_ms = now_ms
    if len(unsettled) >= UNSETTLED_MAX:
        segment.settle()
    return base_offset
