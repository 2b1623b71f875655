"""A follower's Fetch request, version 17, written by hand.

A follower sends only this request, over and over. The tables take 7 us to write one partition, this code takes 2.5 us.
Reading the answer by hand was tried and is no faster than by its table.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from moldau.protocol.source import write_varint

FETCH_VERSION: Final = 17

_REPLICA_STATE_TAG = 1

_head = struct.Struct(">iiibii")
_partition = struct.Struct(">iiqiqix")
_replica_state = struct.Struct(">BBBiqx")


class FetchLimits(NamedTuple):
    """Limits of every request, as long as the configuration is the same."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class Position(NamedTuple):
    """Position of a follower in one partition, in the order of the bytes."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


def encode_request(
    replica_id: int,
    replica_epoch: int,
    limits: FetchLimits,
    session: tuple[int, int],
    named: Mapping[bytes, Sequence[Position]],
    forgotten: Mapping[bytes, Sequence[int]],
) -> bytes:
    """A request without its header; `session` is its id and epoch, topics go by their ids."""
    max_wait_ms, min_bytes, max_bytes, partition_max_bytes = limits
    pieces = [_head.pack(max_wait_ms, min_bytes, max_bytes, 0, *session), write_varint(len(named) + 1)]
    for topic_id, positions in named.items():
        pieces += (topic_id, write_varint(len(positions) + 1))
        pieces += [_partition.pack(*position, partition_max_bytes) for position in positions]
        pieces.append(b"\0")
    pieces.append(write_varint(len(forgotten) + 1))
    for topic_id, indexes in forgotten.items():
        pieces += (topic_id, write_varint(len(indexes) + 1), struct.pack(f">{len(indexes)}ix", *indexes))
    pieces.append(b"\1")  # no rack
    pieces.append(_replica_state.pack(1, _REPLICA_STATE_TAG, _replica_state.size - 3, replica_id, replica_epoch))
    return b"".join(pieces)
