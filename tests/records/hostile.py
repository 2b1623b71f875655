"""Batches that are small on the wire and large when they are opened."""

from moldau.records.batch import MAGIC_V2, BatchHeader, reseal
from moldau.records.compression import Codec, compress
from moldau.records.record import write_varint

_WITHOUT_OFFSET = b"\x0e\0\0"  # seven bytes follow, attributes, timestamp delta
_KEY_AND_VALUE = b"\x02k\0\0"  # a key of one byte, an empty value, no headers


def many_records(
    count: int,
    codec: int = Codec.ZSTD,
    *,
    numbered: bool = False,
    timestamp: int = 0,
    max_timestamp: int | None = None,
    producer: tuple[int, int] = (-1, -1),
) -> bytes:
    """A batch of `count` records. Unless they are numbered their offsets are all the same, which compresses best.

    `producer`: its id, and the sequence number of the first record.
    """
    if numbered:
        data = bytearray()
        for index in range(count):
            body = bytearray(2)
            write_varint(body, index)
            body += _KEY_AND_VALUE
            write_varint(data, len(body))
            data += body
    else:
        data = bytearray((_WITHOUT_OFFSET + b"\0" + _KEY_AND_VALUE[:-1] + b"\0") * count)
    producer_id, sequence = producer
    header = BatchHeader(
        0, 0, -1, MAGIC_V2, 0, int(codec), count - 1, timestamp, timestamp if max_timestamp is None else max_timestamp,
        producer_id, 0 if producer_id >= 0 else -1, sequence, count,
    )  # fmt: skip  # the order of the bytes
    return reseal(header, compress(codec, bytes(data)))[1]
