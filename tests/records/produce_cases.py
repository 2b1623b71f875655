"""What producers might send, good and bad. `vectors/appends.txt` has what Apache Kafka's own log made of each.

`python -m tests.records.produce_cases` prints the input of `vectors/Appends.java`.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from moldau.records.batch import (
    BATCH_HEADER_BYTES,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    read_header,
    reseal,
)
from moldau.records.compression import CODECS_BY_NAME, Codec, compress
from moldau.records.legacy import build_message_set, encode_message

NOW = 1_700_000_100_000
T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

RECORDS = (
    Record(0, T + 5, b"key", b"value", (("header", b"1"), ("none", None))),
    Record(1, T, b"k2", b"x" * 300),
    Record(2, T + 70_000, b"", None),
)
WITHOUT_KEY = (RECORDS[0], Record(1, T, None, b"value"), RECORDS[2])


class Case(NamedTuple):
    name: str
    data: bytes
    version: int = 11
    config: dict[str, str] = {}  # noqa: RUF012  # a NamedTuple's default, never changed


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields and the right checksum for them."""
    header = read_header(batch)
    length = fields.pop("batch_length", header.batch_length)
    resealed = reseal(header._replace(**fields), batch[BATCH_HEADER_BYTES:])[1]
    return resealed[:8] + length.to_bytes(4, "big", signed=True) + resealed[12:]


def flipped(data: bytes, position: int) -> bytes:
    """One bit other than it was."""
    return data[:position] + bytes((data[position] ^ 1,)) + data[position + 1 :]


def cases() -> Iterator[Case]:
    yield from _common()
    yield from _framing()
    yield from _headers()
    yield from _timestamps()
    yield from _codecs()
    yield from _inside()
    yield from _message_sets()


def _common() -> Iterator[Case]:
    for name in CODECS:
        batch = build_batch(RECORDS, codec=CODECS_BY_NAME[name])
        yield Case(f"plain_{name}", batch)
        yield Case(f"compacted_{name}", batch, config={"cleanup.policy": "compact"})
        yield Case(f"append_time_{name}", batch, config={"message.timestamp.type": "LogAppendTime"})
        yield Case(f"too_large_{name}", batch, config={"max.message.bytes": "80"})
    yield Case("exactly_the_limit", build_batch(RECORDS), config={"max.message.bytes": str(len(build_batch(RECORDS)))})
    yield Case("idempotent", build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=0))
    yield Case("leader_epoch_of_the_client", build_batch(RECORDS, leader_epoch=77))


def _framing() -> Iterator[Case]:
    batch = build_batch(RECORDS)
    yield Case("empty", b"")
    yield Case("cut_in_the_header", batch[:40])
    yield Case("cut_in_the_records", batch[:-1])
    yield Case("two_batches", batch + batch)
    yield Case("two_batches_old_produce", batch + batch, version=2)
    yield Case("a_batch_and_a_part_of_one", batch + batch[:50])
    yield Case("a_batch_and_seven_bytes", batch + b"\0" * 7)
    yield Case("a_batch_and_zeros", batch + b"\0" * 20)
    yield Case("a_batch_in_old_produce", batch, version=2)
    yield Case("wrong_crc", flipped(batch, len(batch) - 1))
    yield Case("magic_3", batch[:16] + b"\x03" + batch[17:])
    yield Case("magic_minus_1", batch[:16] + b"\xff" + batch[17:])
    yield Case("length_negative", changed(batch, batch_length=-5))
    yield Case("length_13", changed(batch, batch_length=13))
    yield Case("length_48", changed(batch, batch_length=48))


def _headers() -> Iterator[Case]:
    batch = build_batch(RECORDS)
    yield Case("base_offset_5", changed(batch, base_offset=5))
    yield Case("count_0", changed(batch, record_count=0, last_offset_delta=-1))
    yield Case("count_negative", changed(batch, record_count=-3))
    yield Case("count_too_high", changed(batch, record_count=4))
    yield Case("last_offset_too_high", changed(batch, last_offset_delta=3))
    yield Case("last_offset_negative", changed(batch, last_offset_delta=-7))
    yield Case("sequence_missing", changed(batch, producer_id=7, producer_epoch=0))
    yield Case("sequence_negative", changed(batch, producer_id=7, producer_epoch=0, base_sequence=-2))
    yield Case("control_flag", changed(batch, attributes=0x20))
    marker = build_end_txn_marker(EndTxnMarker(True, 1), producer_id=7, producer_epoch=0, timestamp=T)
    yield Case("end_txn_marker", marker)
    yield Case("reserved_attributes", changed(batch, attributes=0x4000))


def _timestamps() -> Iterator[Case]:
    batch = build_batch(RECORDS)
    hour = 3_600_000
    after = {"message.timestamp.after.max.ms": str(hour)}
    before = {"message.timestamp.before.max.ms": str(hour)}
    late = build_batch([Record(0, T, b"k", b"v"), Record(1, NOW + hour + 1, b"k", b"v")])
    early = build_batch([Record(0, NOW - hour - 1, b"k", b"v"), Record(1, NOW, b"k", b"v")])
    untimed = build_batch([Record(0, -1, b"k", b"v"), Record(1, -1, b"k", b"v")])
    for kind in ("delete", "compact"):
        policy = {"cleanup.policy": kind}
        yield Case(f"too_late_{kind}", late, config=after | policy)
        yield Case(f"too_early_{kind}", early, config=before | policy)
        yield Case(f"no_timestamps_{kind}", untimed, config=after | before | policy)
    just = build_batch([Record(0, NOW - hour, b"k", b"v"), Record(1, NOW + hour, b"k", b"v")])
    yield Case("just_in_time", just, config=after | before)
    stamped = build_batch(RECORDS, log_append_time_ms=T + 9)
    append_time = {"message.timestamp.type": "LogAppendTime"}
    yield Case("append_time_by_the_client", stamped)
    yield Case(
        "append_time_by_the_client_too_late", build_batch(RECORDS, log_append_time_ms=NOW + hour * 2), config=after
    )
    yield Case("append_time_by_the_client_refused", stamped, config=append_time)
    yield Case("append_time_without_time", build_batch(RECORDS, log_append_time_ms=-1))
    yield Case("append_time_ignores_the_limits", late, config=append_time | after)
    yield Case("append_time_uncompressed", batch, config=append_time | {"compression.type": "uncompressed"})


def _codecs() -> Iterator[Case]:
    for source in CODECS:
        batch = build_batch(RECORDS, codec=CODECS_BY_NAME[source], producer_id=7, producer_epoch=1, base_sequence=0)
        for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            yield Case(f"{source}_to_{target}", batch, config={"compression.type": target})
    for version in (3, 6, 7):
        yield Case(f"zstd_in_produce_{version}", build_batch(RECORDS, codec=Codec.ZSTD), version=version)
    grown = build_batch([Record(0, T, b"k", b"x" * 1000)], codec=Codec.GZIP)
    yield Case(
        "too_large_when_recompressed",
        grown,
        config={"compression.type": "uncompressed", "max.message.bytes": "500"},
    )
    yield Case("codec_5", changed(build_batch(RECORDS), attributes=5))


def _inside() -> Iterator[Case]:
    compact = {"cleanup.policy": "compact"}
    for name in CODECS:
        yield Case(f"no_key_{name}", build_batch(WITHOUT_KEY, codec=CODECS_BY_NAME[name]), config=compact)
        yield Case(f"no_key_allowed_{name}", build_batch(WITHOUT_KEY, codec=CODECS_BY_NAME[name]))
    gzip_batch = build_batch(RECORDS, codec=Codec.GZIP)
    offsets_wrong = build_batch([r._replace(offset=0) for r in RECORDS], codec=Codec.GZIP)
    yield Case("inner_offsets_wrong", changed(offsets_wrong, last_offset_delta=2), config=compact)
    plain_wrong = build_batch([r._replace(offset=0) for r in RECORDS])
    yield Case("offsets_wrong_uncompressed", changed(plain_wrong, last_offset_delta=2), config=compact)
    yield Case("max_timestamp_wrong", changed(gzip_batch, max_timestamp=5), config=compact)
    yield Case("fewer_records_than_said", changed(gzip_batch, record_count=4, last_offset_delta=3), config=compact)
    yield Case("more_records_than_said", changed(gzip_batch, record_count=2, last_offset_delta=1), config=compact)


def _message_sets() -> Iterator[Case]:
    for magic in (0, 1):
        for name in CODECS[:-1]:
            data = build_message_set(RECORDS, magic=magic, codec=CODECS_BY_NAME[name])
            yield Case(f"v{magic}_{name}", data, version=magic)
            yield Case(f"v{magic}_{name}_append_time", data, magic, {"message.timestamp.type": "LogAppendTime"})
            yield Case(f"v{magic}_{name}_to_gzip", data, magic, {"compression.type": "gzip"})
            yield Case(f"v{magic}_{name}_in_produce_3", data, version=3)
            no_key = build_message_set(WITHOUT_KEY, magic=magic, codec=CODECS_BY_NAME[name])
            yield Case(f"v{magic}_{name}_no_key", no_key, magic, {"cleanup.policy": "compact"})
            yield Case(f"v{magic}_{name}_wrong_crc", flipped(data, len(data) - 1), magic)
            yield Case(f"v{magic}_{name}_cut", data[:-1], magic)
            yield Case(f"v{magic}_{name}_too_large", data, magic, {"max.message.bytes": "60"})
        yield from _odd_message_sets(magic)


def _odd_message_sets(magic: int) -> Iterator[Case]:
    plain = build_message_set(RECORDS, magic=magic)
    wrapped = build_message_set(RECORDS, magic=magic, codec=Codec.GZIP)
    yield Case(f"v{magic}_two_wrappers", wrapped + wrapped, version=magic)
    yield Case(f"v{magic}_plain_and_wrapper", plain + wrapped, version=magic)
    yield Case(f"v{magic}_wrapper_and_plain", wrapped + plain, version=magic)
    yield Case(f"v{magic}_and_a_part_of_one", plain + wrapped[:20], version=magic)
    yield Case(f"v{magic}_mixed_with_v2", plain + build_batch(RECORDS), version=magic)
    yield Case(f"v{magic}_mixed_formats", plain + build_message_set(RECORDS, magic=1 - magic), version=magic)
    offsets = [r._replace(offset=offset) for r, offset in zip(RECORDS, (9, 9, 3), strict=True)]
    yield Case(f"v{magic}_offsets_wrong", build_message_set(offsets, magic=magic, codec=Codec.GZIP), version=magic)
    stamped = build_message_set(RECORDS, magic=magic, codec=Codec.GZIP, log_append_time_ms=T + 9)
    yield Case(f"v{magic}_append_time_by_the_client", stamped, version=magic)
    yield Case(f"v{magic}_append_time_refused", stamped, magic, {"message.timestamp.type": "LogAppendTime"})
    late = build_message_set([Record(0, NOW + 3_600_001, b"k", b"v")], magic=magic)
    yield Case(f"v{magic}_too_late", late, magic, {"message.timestamp.after.max.ms": "3600000"})
    yield Case(f"v{magic}_nested_twice", _wrapper(magic, wrapped), version=magic)
    yield Case(f"v{magic}_wrapper_of_nothing", _wrapper(magic, b""), version=magic)
    yield Case(f"v{magic}_inner_crc_wrong", _wrapper(magic, flipped(plain, 30)), version=magic)
    other = build_message_set(RECORDS, magic=1 - magic)
    yield Case(f"v{magic}_other_format_inside", _wrapper(magic, other), version=magic)
    no_value = encode_message(Record(0, T, None, None), magic, Codec.GZIP)
    yield Case(f"v{magic}_wrapper_without_value", no_value, version=magic)


def _wrapper(magic: int, inner: bytes) -> bytes:
    value = bytes(compress(Codec.GZIP, inner))
    return encode_message(Record(0, T, None, value), magic, Codec.GZIP)


def as_line(case: Case) -> str:
    config = ",".join(f"{key}={value}" for key, value in case.config.items()) or "-"
    return f"{case.name} {case.version} {config} {case.data.hex()}\n"


if __name__ == "__main__":
    sys.stdout.writelines(as_line(case) for case in cases())
