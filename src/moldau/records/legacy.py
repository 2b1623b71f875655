"""Message sets of the formats before v2: v0 (Kafka 0.8, 0.9) and v1 with timestamps (0.10, KIP-31 and KIP-32).

    0  offset, size                      -- the same in all three formats, and so is the place of magic
   12  crc (CRC-32 of everything behind it), magic, attributes, [v1: timestamp]
       key and value, each with a length before it

A set has no header of its own. A compressed one is a wrapper message whose value holds the compressed inner set:
the wrapper has the offset of the last inner message, the inner ones have absolute offsets (v0) or count from 0.
"""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

from moldau.core.files import Buffer, FileRegion
from moldau.core.invariants import invariant
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_TIMESTAMP,
    CorruptBatchError,
    check_batch,
    iter_records,
    read_header,
)
from moldau.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    compress,
    compress_lz4_v0,
    decompress,
    decompress_lz4_v0,
    opened_bytes_max,
)
from moldau.records.record import Record, RecordFormatError

MAGIC_V0 = 0
MAGIC_V1 = 1
MESSAGES_MAX = 500_000  # in one set; records cost far more memory than their bytes

CONVERTED_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of stored batches that one answer to an old consumer is made of; the first batch comes whatever its size."""
CONVERTED_SET_BYTES_MAX = 2**31 - 1
"""Bytes of one partition in an answer: the most that a consumer can ask for."""
CONVERTED_RECORDS_MAX = 50_000
"""Records in one answer: a third of a second of a thread, 20 MB while they are objects."""

_LENGTH_POSITION = 8
_MESSAGE_SIZE_MIN = 14  # crc, magic, attributes and two lengths
_MAGIC_END = MAGIC_POSITION + 1
_OVERHEADS = (26, 34)
"""Bytes of a message of each format beside its key and value."""
_HEAD = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")


class Message(NamedTuple):
    """One message of a set: a record, or the wrapper of a compressed set."""

    magic: int
    attributes: int
    record: Record

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic > MAGIC_V0 and self.attributes & LOG_APPEND_TIME_FLAG != 0


def split_frames(data: Buffer) -> list[memoryview]:
    """Messages or batches of any format, unchecked; one that is cut off at the end is left out, as Kafka does."""
    return list(iter_frames(data))


def iter_frames(data: Buffer) -> Iterator[memoryview]:
    """The frames of `split_frames` one by one: a list of them takes ten times the bytes of the smallest messages."""
    view = memoryview(data)
    count = 0
    position = 0
    while len(view) - position >= LOG_OVERHEAD:
        size = _LENGTH.unpack_from(view, position + _LENGTH_POSITION)[0]
        if size < _MESSAGE_SIZE_MIN:
            raise CorruptBatchError(f"{size} bytes are too few for a message")
        if len(view) - position >= _MAGIC_END and view[position + MAGIC_POSITION] > MAGIC_V2:
            raise CorruptBatchError(f"there is no message format {view[position + MAGIC_POSITION]}")
        end = position + LOG_OVERHEAD + size
        if end > len(view):
            break
        count += 1
        check_count(count)
        yield view[position:end]
        position = end


def check_count(count: int) -> None:
    """Raise MESSAGE_TOO_LARGE if one batch or set has more records than may be taken out of it."""
    if count > MESSAGES_MAX:
        reason = f"{count} records to be opened at once, {MESSAGES_MAX} are the limit"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)


def check_message(frame: memoryview) -> None:
    """Raise CorruptBatchError unless the message's checksum is right."""
    stored = _HEAD.unpack_from(frame)[2]
    actual = zlib.crc32(frame[MAGIC_POSITION:])
    if actual != stored:
        raise CorruptBatchError(f"checksum is {actual:08x}, the message says {stored:08x}")


def read_message(frame: memoryview) -> Message:
    """The fields of one message, which may be a wrapper."""
    offset, _, _, magic, attributes = _HEAD.unpack_from(frame)
    position = _HEAD.size
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        if len(frame) < position + _TIMESTAMP.size:
            raise RecordFormatError("a message ends before its timestamp")
        timestamp = _TIMESTAMP.unpack_from(frame, position)[0]
        position += _TIMESTAMP.size
    key, position = _read_bytes(frame, position)
    value, _ = _read_bytes(frame, position)
    return Message(magic, attributes, Record(offset, timestamp, key, value))


def decompressed(wrapper: Message, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The set that is in a compressed message."""
    value = wrapper.record.value
    if value is None:
        raise RecordFormatError("a compressed message has no value")
    return _decompress(wrapper, value, limit)


def inner_messages(wrapper: Message, inner: Buffer) -> Iterator[Message]:
    """The messages of a decompressed set, each checked, with absolute offsets and the timestamps consumers see."""
    last = deque(iter_frames(inner), maxlen=1)
    if not last:
        raise RecordFormatError("a compressed message holds no messages")
    base_offset = _inner_base_offset(wrapper, last[0])
    for frame in iter_frames(inner):
        yield _inner_message(wrapper, frame, base_offset)


def read_message_set(data: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """All records of a set as a consumer sees them."""
    for frame in split_frames(data):
        check_message(frame)
        message = read_message(frame)
        if message.codec == Codec.NONE:
            yield message.record
        else:
            yield from (inner.record for inner in inner_messages(message, decompressed(message, limit)))


def build_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    codec: int = Codec.NONE,
    base_offset: int | None = None,
    log_append_time_ms: int | None = None,
) -> bytes:
    """The records as a set of format v0 or v1, which has no headers. Offsets of v1 count from `base_offset`."""
    invariant(magic in (MAGIC_V0, MAGIC_V1), f"message format {magic} has no message sets")
    if log_append_time_ms is not None:
        records = [record._replace(timestamp=log_append_time_ms) for record in records]
    flags = LOG_APPEND_TIME_FLAG if log_append_time_ms is not None and magic > MAGIC_V0 else 0
    if codec == Codec.NONE:
        return _messages(records, magic, flags)
    base_offset = records[0].offset if base_offset is None else base_offset
    inner_base = base_offset if magic == MAGIC_V1 else 0
    inner = _messages([record._replace(offset=record.offset - inner_base) for record in records], magic, flags)
    timestamp = max(record.timestamp for record in records)
    wrapper = Record(records[-1].offset, timestamp, None, _compress(magic, codec, inner))
    return encode_message(wrapper, magic, flags | codec)


def down_convert(data: Buffer, *, magic: int, from_offset: int = 0) -> bytes:
    """A region of a log as a message set for an old consumer that asked for `from_offset`."""
    return DownConversion(magic, bytes_max=len(data), records_max=MESSAGES_MAX).message_set(data, from_offset)


class DownConversion:
    """Maker of the message sets of one answer to an old consumer, within a budget.

    Control batches and a batch cut off at the end are left out, headers are lost. Records before the offset that is
    asked for are left out where the batch is not compressed, as Kafka does. Messages that are in an old format already
    stay as they are. A set ends where the budget is used up, if need be inside a batch; the consumer comes again from
    there.

    A set ends, too, where the consumer has no room for more: then it is cut in the middle of a message, as it was when
    messages were stored one by one. A consumer that finds not even one whole message knows that it needs more room; a
    consumer that finds nothing waits for ever.
    """

    __slots__ = ("_bytes_left", "_magic", "_records_left")

    def __init__(
        self, magic: int, bytes_max: int = CONVERTED_BYTES_MAX, records_max: int = CONVERTED_RECORDS_MAX
    ) -> None:
        self._magic = magic
        self._bytes_left = bytes_max
        self._records_left = records_max

    def convert(self, region: FileRegion, from_offset: int, room: int, *, first_whole: bool = False) -> bytes:
        """A message set of as much of a region as the budget allows: nothing, or a part of the first batch at least.

        The set is cut after `room` bytes, unless its first message is larger and is to come whole.
        """
        if self._bytes_left <= 0 or self._records_left <= 0:
            return b""
        head = region.file.read_at(region.position, LOG_OVERHEAD)
        first = LOG_OVERHEAD + _LENGTH.unpack_from(head, _LENGTH_POSITION)[0] if len(head) == LOG_OVERHEAD else 0
        size = min(region.size, max(first, self._bytes_left))
        messages = self.message_set(region.file.read_at(region.position, size), from_offset, room)
        return messages[: max(room, _first_size(messages))] if first_whole else messages[:room]

    def message_set(self, data: Buffer, from_offset: int, room: int = CONVERTED_SET_BYTES_MAX) -> bytes:
        """A message set of bytes that were read already, with the message that goes beyond `room`."""
        messages = bytearray()
        for frame in iter_frames(data):
            if self._records_left <= 0 or (messages and len(messages) >= room):
                break
            self._bytes_left -= len(frame)
            messages += self._converted(frame, from_offset, room - len(messages))
        return bytes(messages)

    def _converted(self, frame: memoryview, from_offset: int, room: int) -> Buffer:
        if frame[MAGIC_POSITION] <= self._magic:
            return frame
        if frame[MAGIC_POSITION] == MAGIC_V2:
            return self._batch(frame, from_offset, room)
        records = list(read_message_set(frame, limit=opened_bytes_max(len(frame))))
        self._records_left -= len(records)
        return build_message_set(records, magic=self._magic, codec=read_message(frame).codec)

    def _batch(self, batch: memoryview, from_offset: int, room: int) -> bytes:
        header = read_header(batch)
        check_batch(batch, header)
        if header.is_control or header.record_count == 0:
            return b""
        if header.codec == Codec.ZSTD:
            reason = "records compressed with zstd cannot be converted to an older message format"
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason)
        check_count(header.record_count)
        is_whole = header.record_count <= self._records_left
        records = iter_records(batch, limit=opened_bytes_max(len(batch)))
        if header.codec == Codec.NONE or not is_whole:
            records = (record for record in records if record.offset >= from_offset)
        if header.codec == Codec.NONE:
            records = _until_full(records, self._magic, room)
        kept = list(islice(records, self._records_left))
        self._records_left -= len(kept)
        if not kept:
            return b""
        return build_message_set(
            kept,
            magic=self._magic,
            codec=header.codec,
            base_offset=header.base_offset,
            log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        )


def _until_full(records: Iterable[Record], magic: int, room: int) -> Iterator[Record]:
    """The first record, and more until their messages fill the room."""
    for record in records:
        yield record
        room -= _OVERHEADS[magic] + len(record.key or b"") + len(record.value or b"")
        if room <= 0:
            return


def _first_size(messages: bytes) -> int:
    return LOG_OVERHEAD + int(_LENGTH.unpack_from(messages, _LENGTH_POSITION)[0]) if messages else 0


def _inner_message(wrapper: Message, frame: memoryview, base_offset: int) -> Message:
    check_message(frame)
    message = read_message(frame)
    if message.magic != wrapper.magic:
        raise RecordFormatError(f"a message of format {message.magic} inside one of format {wrapper.magic}")
    if message.codec != Codec.NONE:
        raise RecordFormatError("a compressed message inside a compressed message")
    timestamp = wrapper.record.timestamp if wrapper.is_log_append_time else message.record.timestamp
    record = message.record._replace(offset=base_offset + message.record.offset, timestamp=timestamp)
    return message._replace(record=record)


def _inner_base_offset(wrapper: Message, last_frame: memoryview) -> int:
    """The number that must be added to inner offsets to make them absolute."""
    if wrapper.magic == MAGIC_V0:
        return 0
    last_inner_offset: int = _HEAD.unpack_from(last_frame)[0]
    return wrapper.record.offset - last_inner_offset


def _messages(records: Sequence[Record], magic: int, attributes: int) -> bytes:
    return b"".join([encode_message(record, magic, attributes) for record in records])


def encode_message(record: Record, magic: int, attributes: int) -> bytes:
    """One message as it lies in a set; with a codec in `attributes`, the value is the compressed inner set."""
    timestamp = _TIMESTAMP.pack(record.timestamp) if magic > MAGIC_V0 else b""
    fields = b"".join((timestamp, _encode_bytes(record.key), _encode_bytes(record.value)))
    crc = zlib.crc32(fields, zlib.crc32(bytes((magic, attributes))))
    return _HEAD.pack(record.offset, len(fields) + 6, crc, magic, attributes) + fields


def _encode_bytes(value: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if value is None else _LENGTH.pack(len(value)) + value


def _read_bytes(frame: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + _LENGTH.size
    if start > len(frame):
        raise RecordFormatError("a message ends before a length")
    size: int = _LENGTH.unpack_from(frame, position)[0]
    if size < 0:
        return None, start
    if size > len(frame) - start:
        raise RecordFormatError(f"a field of {size} bytes does not fit into its message")
    return bytes(frame[start : start + size]), start + size


def _compress(magic: int, codec: int, data: bytes) -> bytes:
    if magic == MAGIC_V0 and codec == Codec.LZ4:
        return compress_lz4_v0(data)
    return bytes(compress(codec, data))


def _decompress(wrapper: Message, value: bytes, limit: int) -> Buffer:
    if wrapper.codec == Codec.ZSTD:  # KIP-110 allows it in v2 batches only
        reason = "zstd cannot be used in message formats before v2"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason)
    if wrapper.magic == MAGIC_V0 and wrapper.codec == Codec.LZ4:
        return decompress_lz4_v0(value, limit=limit)
    return decompress(wrapper.codec, value, limit=limit)
