"""A plain batch into a log: one function for what `Log.append_as_leader` does with a batch that needs nothing else.

The law: it leaves the log, its last segment and its producers as that would, or does not touch them. It knows their
insides because a call for each would cost a tenth of an append; nobody outside of this package does.
"""

from moldau.log.log import Log
from moldau.log.producers import KEPT_BEFORE_MAX, LAST_SEQUENCE, NO_OFFSET
from moldau.log.segment import UNSETTLED_MAX
from moldau.records.batch import BODY_START, SEQUENCE_MASK, stamp, stamp_into


def append_plain(
    log: Log,
    frame: memoryview,
    start: int,
    stop: int,
    length: int,
    leader_epoch: int,
    delta: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    is_transactional: bool,
    now_ms: int,
) -> int | None:
    """Append the batch that is `frame[start:stop]`, as a leader, and return its offset; None: nothing was done, as
    the segment has no room for sure, or the batch is not the next one of a producer that is known, or it is of a
    transaction that is not open here.

    The rest of the parameters are the leader's and those of the batch's header. A frame that can be written to gets
    the offset in its place.
    """
    segment, base_offset, size = log.segments.active, log.log_end_offset, stop - start
    file, last_offset = segment.open_file, base_offset + delta
    config, size_max, offset_max, timestamp_max = segment.room
    if (
        file is None
        or config is not log.config
        or segment.size + size > size_max
        or last_offset > offset_max
        or timestamp > timestamp_max
        or log.failure is not None
    ):
        return None
    entry = None
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
        entry.kept = (*kept[-KEPT_BEFORE_MAX:], last_sequence, last_offset, delta, timestamp)
        entry.rows = None
        entry.last_timestamp = timestamp
        entry.last_seen_ms = now_ms
    if len(unsettled) >= UNSETTLED_MAX:
        segment.settle()
    return base_offset
