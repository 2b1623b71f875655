"""Checks, and changes, that a leader makes before it appends a client's records.

The law: one produced batch of format v2 costs a look at its header and a checksum. Its records are opened only when the
topic is compacted (every record needs a key) or has a codec of its own, and then every record is checked.

This is coarser than Kafka, which walks over the records of every batch: on the common path the count of records and
their offset deltas are taken from the header if so many can be in the batch at all, `message.timestamp.after.max.ms` is
compared with the header's max timestamp and `message.timestamp.before.max.ms` with the first record's, and a max
timestamp that is not that of the records is not corrected.

Opening costs a microsecond and more a record. A batch that fits into an `Allowance` is opened at once; for others
`RecordsToOpen` is raised, and its `work` is to be called where it holds nobody up.

Everything is stored as v2, so that UNSUPPORTED_FOR_MESSAGE_FORMAT (transactions in an older format) cannot occur.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from moldau.core.clock import Clock
from moldau.core.files import Buffer
from moldau.protocol.errors import ApiError, ErrorCode
from moldau.records import legacy
from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    BODY_START,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_LAYOUT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    check_batch,
    read_header,
    records_data,
    reseal,
)
from moldau.records.compression import (
    CODECS_BY_NAME,
    DECOMPRESSED_BYTES_MAX,
    Codec,
    DecompressedTooLargeError,
    compress,
    opened_bytes_max,
)
from moldau.records.crc import crc32c
from moldau.records.record import RecordOutline, encode_record_into, outline_records

PRODUCE_SENDS_ONE_V2_BATCH = 3  # KIP-98
PRODUCE_ALLOWS_ZSTD = 7  # KIP-110
CREATE_TIME = "CreateTime"
KEEP_CODEC = "producer"
TIMESTAMP_UNLIMITED_MS = 2**63 - 1
RECORD_ERRORS_MAX = 1000
RECORD_BYTES_MIN = 7
"""Bytes of the smallest record: length, attributes, two deltas, no key, no value, no headers, a byte each."""
COMPRESSED_RECORDS_MAX = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN
"""Records of a compressed batch. Without opening it nobody knows how many it holds; more than this nobody could
open."""
SET_MESSAGES_MAX = 100_000
"""Messages of a set in an old format: each takes ten times as long as a record of a batch."""
ALLOWANCE_MS = 100
ALLOWED_BYTES = 64 * 1024
"""Bytes that an allowance has: messages of the old formats have 26 bytes at least and take 6 us each, 15 ms in all."""
ALLOWED_RECORDS = 5_000
"""Records that an allowance has: records of a batch take 1.5 us each, 8 ms in all."""

LENGTH_POSITION = 8

_ZSTD = int(Codec.ZSTD)  # looking up an enum's member costs more than the comparison
_REWRITTEN_OR_REFUSED = LOG_APPEND_TIME_FLAG | CONTROL_FLAG
_LENGTH_WITHOUT_RECORDS = BATCH_HEADER_BYTES - LOG_OVERHEAD
_unpack_header = HEADER_LAYOUT.unpack_from
_new_tuple = tuple.__new__  # a quarter of what BatchHeader._make costs


class PreparedBatch(NamedTuple):
    """A batch as it will be stored, behind the 16 bytes that `stamp` makes when its offset is known.

    `header` has the final attributes, timestamps, length and checksum; offset and leader epoch are not set yet.
    """

    header: BatchHeader
    body: memoryview

    @property
    def size(self) -> int:
        return BODY_START + len(self.body)


class Allowance:
    """Allowance for opening records on the event loop in ALLOWANCE_MS: at most some 20 ms of work, however it is
    cut."""

    __slots__ = ("_clock", "_filled_ms", "bytes_left", "records_left")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._filled_ms = clock.monotonic_ms()
        self.bytes_left = ALLOWED_BYTES
        self.records_left = ALLOWED_RECORDS

    def take(self, size: int, records: int = 0) -> bool:
        """Take this much from the allowance; False, and nothing is taken, if less is left."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._filled_ms >= ALLOWANCE_MS:
            self._filled_ms, self.bytes_left, self.records_left = now_ms, ALLOWED_BYTES, ALLOWED_RECORDS
        if size > self.bytes_left or records > self.records_left:
            return False
        self.bytes_left -= size
        self.records_left -= records
        return True


class RecordsToOpen(Exception):  # not an error: it says what is to be done
    """Signal that a batch is beyond the allowance. `work` makes the batch to append, and raises as `prepare_for_append`
    does."""

    def __init__(self, work: "Callable[[], PreparedBatch]") -> None:
        super().__init__("records are to be opened elsewhere")
        self.work = work


class AppendRules(NamedTuple):
    """The settings of a topic that decide how a batch is stored."""

    max_message_bytes: int
    compression_type: str = KEEP_CODEC
    message_timestamp_type: str = CREATE_TIME
    timestamp_before_max_ms: int = TIMESTAMP_UNLIMITED_MS
    timestamp_after_max_ms: int = TIMESTAMP_UNLIMITED_MS
    is_compacted: bool = False

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type != CREATE_TIME

    @property
    def is_stored_as_sent(self) -> bool:
        """Whether a good batch is never opened and never rewritten."""
        return not self.is_compacted and not self.is_log_append_time and self.compression_type == KEEP_CODEC

    def target_codec(self, source: int) -> int:
        """The codec to store a batch in that came in `source`."""
        return source if self.compression_type == KEEP_CODEC else CODECS_BY_NAME[self.compression_type]


class RecordError(NamedTuple):
    """Record of a refused batch that is to blame (KIP-467)."""

    batch_index: int
    message: str
    code: ErrorCode


class InvalidRecordsError(ApiError):
    """Error: a batch is refused for some of its records. INVALID_TIMESTAMP if one has a wrong timestamp, else
    INVALID_RECORD."""

    def __init__(self, errors: Sequence[RecordError]) -> None:
        is_timestamp = any(error.code == ErrorCode.INVALID_TIMESTAMP for error in errors)
        code = ErrorCode.INVALID_TIMESTAMP if is_timestamp else ErrorCode.INVALID_RECORD
        super().__init__(code, f"{len(errors)} records are not acceptable, the first one: {errors[0].message}")
        self.record_errors = tuple(errors)


def prepare_for_append(
    data: Buffer, rules: AppendRules, produce_version: int, now_ms: int, allowance: Allowance | None = None
) -> PreparedBatch:
    """The batch to append, made from a producer's bytes for one partition and checked. Without an allowance all is
    allowed."""
    if len(data) >= BATCH_HEADER_BYTES and data[MAGIC_POSITION] == MAGIC_V2:
        max_message_bytes, compression_type, timestamp_type, before_max_ms, after_max_ms, is_compacted = rules
        header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(data))
        (
            base_offset, batch_length, _, _, crc, attributes, last_offset_delta, base_timestamp, max_timestamp,
            producer_id, _, base_sequence, record_count,
        ) = header  # fmt: skip  # the order of the bytes
        codec = attributes & CODEC_MASK
        if (
            batch_length + LOG_OVERHEAD == len(data) <= max_message_bytes
            and base_offset == 0
            and 0 <= last_offset_delta == record_count - 1
            and record_count
            <= (COMPRESSED_RECORDS_MAX if codec else (batch_length - _LENGTH_WITHOUT_RECORDS) // RECORD_BYTES_MIN)
            and not attributes & _REWRITTEN_OR_REFUSED
            and (codec < _ZSTD or (codec == _ZSTD and produce_version >= PRODUCE_ALLOWS_ZSTD))
            and (base_sequence >= 0 or producer_id <= NO_PRODUCER_ID)
            and (producer_id > NO_PRODUCER_ID or not attributes & TRANSACTIONAL_FLAG)
            and max_timestamp - now_ms <= after_max_ms
            and (now_ms - base_timestamp <= before_max_ms or base_timestamp == NO_TIMESTAMP)
            and not is_compacted
            and timestamp_type == CREATE_TIME
            and (compression_type == KEEP_CODEC or CODECS_BY_NAME[compression_type] == codec)
            and crc32c((view := memoryview(data))[CRC_START:]) == crc
        ):
            return _new_tuple(PreparedBatch, (header, view[BODY_START:]))
    if allowance is None:
        return _prepare(data, rules, produce_version, now_ms, None)
    try:
        return _prepare(data, rules, produce_version, now_ms, allowance)
    except _TooMuchHereError:
        raise RecordsToOpen(partial(_prepare, data, rules, produce_version, now_ms, None)) from None


def prepare_own_batch(batch: Buffer) -> PreparedBatch:
    """The batch to append, made from a batch of the broker itself: there is nothing to check."""
    return PreparedBatch(read_header(batch), memoryview(batch)[BODY_START:])


class _TooMuchHereError(Exception):
    """Signal that the allowance does not suffice."""


def _prepare(
    data: Buffer, rules: AppendRules, produce_version: int, now_ms: int, allowance: Allowance | None
) -> PreparedBatch:
    """The batch to append, after all other checks, in the order in which Kafka makes them."""
    if not _is_one_batch(data):
        _take(allowance, len(data))
    first = next(legacy.iter_frames(data), None)
    if first is None:
        raise _invalid("there is no whole record batch")
    is_v2 = first[MAGIC_POSITION] == MAGIC_V2
    if produce_version >= PRODUCE_SENDS_ONE_V2_BATCH and not is_v2:
        raise _invalid(f"Produce {produce_version} takes record batches of format v2 only")
    if not is_v2:
        return _prepare_message_set(data, rules, now_ms, allowance)
    header = read_header(first)
    _check_codec(header.codec, produce_version)
    if len(first) < len(data) and (count := sum(1 for _ in legacy.iter_frames(data))) > 1:
        raise _invalid(f"{count} record batches where one is expected")
    _check_batch(first, header, rules)
    return _prepare_v2(first, header, rules, now_ms, allowance)


def _is_one_batch(data: Buffer) -> bool:
    """Whether it is clear without a walk over the data that there is one batch."""
    if len(data) < BATCH_HEADER_BYTES or data[MAGIC_POSITION] != MAGIC_V2:
        return False
    return LOG_OVERHEAD + int.from_bytes(data[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True) == len(data)


def _take(allowance: Allowance | None, size: int, records: int = 0) -> None:
    if allowance is not None and not allowance.take(size, records):
        raise _TooMuchHereError


def _check_batch(batch: memoryview, header: BatchHeader, rules: AppendRules) -> None:
    """Refuse a batch whose header says what no client may send."""
    count = header.record_count
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch is 0, not {header.base_offset}")
    if len(batch) > rules.max_message_bytes:
        raise _too_large(len(batch), rules.max_message_bytes)
    check_batch(batch, header)
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(f"{count} records cannot have offsets 0 to {header.last_offset_delta}")
    if count > _records_max(header.codec, len(batch) - BATCH_HEADER_BYTES):
        raise _invalid(f"{count} records cannot be in {len(batch)} bytes")
    if header.is_control:
        raise _invalid("clients cannot write control batches")
    if header.has_producer_id and header.base_sequence < 0:
        raise _invalid(f"base sequence {header.base_sequence} of producer {header.producer_id} is negative")
    if header.is_transactional and not header.has_producer_id:
        # Kafka stores such a batch unless it has to recompress it, and then fails. No client sends it.
        raise _invalid("a transactional batch has no producer id")


def _records_max(codec: int, section_bytes: int) -> int:
    """The largest number of records that so many bytes behind the header can hold."""
    return section_bytes // RECORD_BYTES_MIN if codec == Codec.NONE else COMPRESSED_RECORDS_MAX


def _prepare_v2(
    view: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int, allowance: Allowance | None
) -> PreparedBatch:
    _check_timestamp_type(header.is_log_append_time, header.max_timestamp, rules)
    target = rules.target_codec(header.codec)
    if rules.is_compacted or target != header.codec:
        legacy.check_count(header.record_count)
        _take(allowance, len(view), header.record_count)
        data = _opened(lambda limit: records_data(view, header, limit=limit), len(view), allowance)
        return _prepare_opened(view, header, data, target, rules, now_ms)
    first = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    _check_records(((first, True), (header.max_timestamp, True)), rules, now_ms)
    return _stored(view, header, _final_header(header, target, header.max_timestamp, rules, now_ms), None)


def _opened(decompress_within: Callable[[int], Buffer], size: int, allowance: Allowance | None) -> Buffer:
    """The content of a batch, if it is not larger than may be held."""
    if allowance is None:
        return decompress_within(opened_bytes_max(size))
    try:
        data = decompress_within(allowance.bytes_left)
    except DecompressedTooLargeError:
        raise _TooMuchHereError from None
    _take(allowance, min(len(data), allowance.bytes_left))
    return data


def _prepare_opened(
    view: memoryview, header: BatchHeader, data: Buffer, target: int, rules: AppendRules, now_ms: int
) -> PreparedBatch:
    outlines = outline_records(data, header.record_count)
    max_timestamp = _check_records(_timestamps_and_keys(outlines, header), rules, now_ms)
    final = _final_header(header, target, max_timestamp, rules, now_ms)
    prepared = _stored(view, header, final, None if target == header.codec else compress(target, data))
    return _within_size(prepared, rules)


def _prepare_message_set(data: Buffer, rules: AppendRules, now_ms: int, allowance: Allowance | None) -> PreparedBatch:
    """One v2 batch without producer id made of old messages, compressed as they were unless the topic has a codec.

    Messages are taken one by one: as objects they would take twenty times their bytes.
    """
    frames = legacy.iter_frames(data)
    first = next(frames)
    message = _checked_message(first, first, rules)
    rest = (_checked_message(frame, first, rules) for frame in frames)
    if message.codec == Codec.NONE:
        records = _NewRecords(chain((message,), map(_not_compressed, rest)))
    else:
        if any(True for _ in rest):
            raise _not_alone()
        inner = _opened(partial(legacy.decompressed, message), len(first), allowance)
        records = _NewRecords(legacy.inner_messages(message, inner))
    max_timestamp = _check_records(records, rules, now_ms)
    codec = rules.target_codec(message.codec)
    header = records.header(codec, max_timestamp)
    header, batch = reseal(_final_header(header, codec, max_timestamp, rules, now_ms), compress(codec, records.data))
    return _within_size(PreparedBatch(header, memoryview(batch)[BODY_START:]), rules)


class _NewRecords:
    """Collector of messages that become records of a batch while they are checked."""

    def __init__(self, messages: Iterable[legacy.Message]) -> None:
        self._messages = messages
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self.data = bytearray()

    def __iter__(self) -> Iterator[tuple[int, bool]]:
        for index, message in enumerate(self._messages):
            if index == SET_MESSAGES_MAX:
                reason = f"more than {SET_MESSAGES_MAX} messages in one set"
                raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, reason)
            record = message.record
            if index == 0:
                self._base_timestamp = record.timestamp
            encode_record_into(self.data, record._replace(offset=index), 0, self._base_timestamp)
            self._count += 1
            yield record.timestamp, record.key is not None

    def header(self, codec: int, max_timestamp: int) -> BatchHeader:
        """The header of the batch, without length and checksum."""
        return BatchHeader(
            0, 0, -1, MAGIC_V2, 0, codec, self._count - 1, self._base_timestamp, max_timestamp,
            NO_PRODUCER_ID, -1, NO_SEQUENCE, self._count,
        )  # fmt: skip  # the order of the bytes


def _not_compressed(message: legacy.Message) -> legacy.Message:
    if message.codec != Codec.NONE:
        raise _not_alone()
    return message


def _not_alone() -> ApiError:
    return _invalid("a compressed message is not alone in its set")


def _checked_message(frame: memoryview, first: memoryview, rules: AppendRules) -> legacy.Message:
    if len(frame) > rules.max_message_bytes:
        raise _too_large(len(frame), rules.max_message_bytes)
    if frame[MAGIC_POSITION] != first[MAGIC_POSITION]:
        raise _invalid("messages of several formats in one set")
    legacy.check_message(frame)
    message = legacy.read_message(frame)
    _check_timestamp_type(message.is_log_append_time, message.record.timestamp, rules)
    return message


def _final_header(header: BatchHeader, codec: int, max_timestamp: int, rules: AppendRules, now_ms: int) -> BatchHeader:
    """The header with the attributes and the max timestamp to store; length and checksum are still as they were
    sent."""
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_FLAG) | codec
    if rules.is_log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    return header._replace(attributes=attributes, max_timestamp=max_timestamp)


def _stored(view: memoryview, sent: BatchHeader, final: BatchHeader, section: Buffer | None) -> PreparedBatch:
    """The batch as it was sent, if its bytes can stay; otherwise one with the `final` header and `section`."""
    if final == sent and section is None:
        return PreparedBatch(sent, view[BODY_START:])
    header, batch = reseal(final, view[BATCH_HEADER_BYTES:] if section is None else section)
    return PreparedBatch(header, memoryview(batch)[BODY_START:])


def _timestamps_and_keys(outlines: Iterable[RecordOutline], header: BatchHeader) -> Iterator[tuple[int, bool]]:
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for index, (timestamp_delta, offset_delta, has_key) in enumerate(outlines):
        if offset_delta != index:
            # Kafka refuses, rewrites or stores it, depending on the codec. No client sends it.
            raise _invalid(f"record {index} of the batch has offset delta {offset_delta}")
        yield base_timestamp + timestamp_delta if append_time is None else append_time, has_key


def _check_records(timestamps_and_keys: Iterable[tuple[int, bool]], rules: AppendRules, now_ms: int) -> int:
    """Check that every record is acceptable; returns the max timestamp."""
    errors: list[RecordError] = []
    max_timestamp = NO_TIMESTAMP
    needs_key = rules.is_compacted
    oldest, newest = _timestamp_range(rules, now_ms)
    for index, (timestamp, has_key) in enumerate(timestamps_and_keys):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if needs_key and not has_key:
            errors.append(RecordError(index, "a record of a compacted topic needs a key", ErrorCode.INVALID_RECORD))
        elif not oldest <= timestamp <= newest and timestamp != NO_TIMESTAMP:
            reason = _timestamp_message(timestamp, rules, now_ms)
            errors.append(RecordError(index, reason, ErrorCode.INVALID_TIMESTAMP))
        if len(errors) >= RECORD_ERRORS_MAX:
            break
    if errors:
        raise InvalidRecordsError(errors)
    return max_timestamp


def _timestamp_range(rules: AppendRules, now_ms: int) -> tuple[int, int]:
    """The oldest and the newest timestamp that the topic takes."""
    if rules.is_log_append_time:
        return -TIMESTAMP_UNLIMITED_MS - 1, TIMESTAMP_UNLIMITED_MS
    return now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms


def _check_timestamp_type(is_log_append_time: bool, timestamp: int, rules: AppendRules) -> None:
    """Refuse LogAppendTime of a client, as only brokers set it. On a CreateTime topic Kafka takes the flag off, it does
    not refuse it."""
    if is_log_append_time and (rules.is_log_append_time or timestamp == NO_TIMESTAMP):
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")


def _check_codec(codec: int, produce_version: int) -> None:
    if codec > Codec.ZSTD:  # Kafka answers UNKNOWN_SERVER_ERROR
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{codec} is no compression codec")
    if codec == Codec.ZSTD and produce_version < PRODUCE_ALLOWS_ZSTD:
        reason = f"Produce {produce_version} cannot carry zstd, {PRODUCE_ALLOWS_ZSTD} can"
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason)


def _within_size(prepared: PreparedBatch, rules: AppendRules) -> PreparedBatch:
    if prepared.size > rules.max_message_bytes:
        raise _too_large(prepared.size, rules.max_message_bytes)
    return prepared


def _timestamp_message(timestamp: int, rules: AppendRules, now_ms: int) -> str:
    oldest, newest = _timestamp_range(rules, now_ms)
    return f"timestamp {timestamp} is not between {oldest} and {newest}"


def _too_large(size: int, limit: int) -> ApiError:
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes is larger than max.message.bytes {limit}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, message)
