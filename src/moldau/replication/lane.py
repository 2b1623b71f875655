"""The short way into a partition: one plain batch of a producer whose last batch is known, into a segment with room.

The law: it leaves log and partition as `Partition.append` would, or does not touch them. What is not plain is not
refused here either: whoever asks goes the long way then, which knows why. It is one function because nearly every
batch comes this way, and half of what an append cost were the calls between small ones.
"""

from typing import TYPE_CHECKING

from moldau.core.files import Buffer
from moldau.log.log import AppendResult
from moldau.log.producers import BatchMetadata
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    BODY_START,
    CRC_START,
    HEADER_LAYOUT,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    stamp,
    stamp_into,
)
from moldau.records.compression import Codec
from moldau.records.crc import crc32c
from moldau.records.validate import AppendRules

if TYPE_CHECKING:
    from moldau.replication.partition import Partition

_PLAIN_ATTRIBUTES_MAX = int(Codec.ZSTD)
"""A codec, and nothing else: no transaction, no marker, the producer's own time."""

_SEQUENCE_MASK = 0x7FFFFFFF
_unpack_header = HEADER_LAYOUT.unpack_from
_new_tuple = tuple.__new__


class Lane:
    """Into one partition, for one configuration."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_bytes_max", "_config", "_leader_epoch", "_log", "_partition")

    def __init__(self, partition: "Partition", rules: AppendRules) -> None:
        """`rules` are those of the configuration that the log has now."""
        self._partition = partition
        self._log = partition.log
        self._config = partition.log.config
        self._leader_epoch = partition.leader_epoch
        self._bytes_max = rules.max_message_bytes if rules.is_stored_as_sent else -1
        self._before_max_ms = rules.timestamp_before_max_ms
        self._after_max_ms = rules.timestamp_after_max_ms

    def append(self, frame: memoryview, start: int, stop: int, now_ms: int) -> AppendResult | None:
        """Append the batch that is `frame[start:stop]`; None: it is not plain, and nothing was done.

        It came with a version of Produce that may carry any codec. In a frame that can be written to it gets its offset
        in place.
        """
        partition, log, size = self._partition, self._log, stop - start
        if not BATCH_HEADER_BYTES <= size <= self._bytes_max:
            return None
        (
            sent_offset, length, _, magic, crc, attributes, delta, base_timestamp, timestamp,
            producer_id, producer_epoch, sequence, count,
        ) = _unpack_header(frame, start)  # fmt: skip  # the order of the bytes
        segment, base_offset = log.segments.active, log.log_end_offset
        file = segment.open_file
        config, size_max, offset_max, timestamp_max = segment.room
        last_offset = base_offset + delta
        if not (
            partition.is_led
            and not partition.is_under_min_isr
            and file is not None
            and length + LOG_OVERHEAD == size
            and magic == MAGIC_V2
            and sent_offset == 0 <= delta == count - 1
            and 0 <= attributes <= _PLAIN_ATTRIBUTES_MAX
            and timestamp - now_ms <= self._after_max_ms
            and now_ms - base_timestamp <= self._before_max_ms
            and config is log.config is self._config
            and segment.size + size <= size_max
            and last_offset <= offset_max
            and timestamp <= timestamp_max
            and self._leader_epoch <= log.leader_epochs.latest
            and log.failure is None
            and crc32c(frame[start + CRC_START : stop]) == crc
        ):
            return None
        entry = None
        if producer_id >= 0:
            entry = log.producers.by_id.get(producer_id)
            if entry is None or entry.epoch != producer_epoch:
                return None
            batches = entry.batches
            if not batches or batches[-1][0] + 1 != sequence:
                return None
        chunks: tuple[Buffer, ...]
        if frame.readonly:
            chunks = (stamp(base_offset, length, self._leader_epoch), frame[start + BODY_START : stop])
        else:
            stamp_into(frame, start, base_offset, length, self._leader_epoch)
            chunks = (frame[start:stop],)
        try:
            position = file.append(chunks, size)
        except OSError as error:
            raise log.append_failed(error) from error
        segment.size = position + size
        segment.note(base_offset, last_offset, timestamp, position, size)
        log.size_bytes += size
        log.log_end_offset = end = last_offset + 1
        if entry is not None:
            last_sequence = (sequence + delta) & _SEQUENCE_MASK
            batches.append(_new_tuple(BatchMetadata, (last_sequence, last_offset, delta, timestamp)))
            entry.last_timestamp = timestamp
            entry.last_seen_ms = now_ms
        if not partition.sole:
            partition.replicated_append(end, size)
        elif partition.waiters:
            partition.advance_high_watermark(end, size)
        else:
            partition.high_watermark = end
        return _new_tuple(AppendResult, (base_offset, last_offset, NO_TIMESTAMP, False))
