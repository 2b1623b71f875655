"""Layouts of the requests and answers that are read and written by hand, and the versions that each is good for.

The tables describe every message; these say the same of a few, in the shape that comes over and over, as one `Struct`
of numbers. A version that a table gains is in no range here until somebody has looked at it: a test says so.
"""

from struct import Struct
from typing import Final

from moldau.protocol.framing import SIZE_BYTES

PRODUCE_VERSIONS: Final = range(9, 14)
"""Versions from KIP-482 on; older ones are laid out otherwise, and are rare."""

CONSUMER_FETCH_VERSIONS: Final = range(15, 19)
"""Versions from KIP-903 on, in which who is a follower says so at the end, and everybody else is a consumer."""

FOLLOWER_FETCH_VERSIONS: Final = range(17, 18)
"""The one that our followers send."""

ONE_BYTE_COUNT_MAX: Final = 126
"""Elements of an array whose count is one byte; it is written as one more than it is."""

NO_TAGS: Final = b"\0"
UUID_BYTES: Final = 16
COUNT_OF_NONE, COUNT_OF_ONE, COUNT_OF_NULL = 1, 2, 0
"""Counts and lengths, as compact arrays and records write them."""

int32_at = Struct(">i").unpack_from

# Produce: of the request only the partitions are read, of the answer only their results are written.

produce_partition_at = Struct(">iBBB").unpack_from
"""Index, and the length of the records: a varint of up to three bytes, or the first bytes behind a shorter one."""

INDEX_BYTES: Final = 4
LENGTH_BYTES_USUAL: Final = 3
"""Enough for batches of up to 2 MB; requests with longer ones need not be quick."""

END_OF_PRODUCE: Final = NO_TAGS + NO_TAGS
"""No tagged fields of the topic, of the request."""

_produce_result = Struct(">ihqqq3s")
pack_result = _produce_result.pack
"""Index, no error, base offset, append time, log start, and END_OF_RESULT."""

PRODUCE_RESULT_BYTES: Final = _produce_result.size
RESULT_HEAD_BYTES: Final = 6  # index, error
END_OF_RESULT: Final = b"\1\0\0"  # no record errors, no message, no tagged fields
pack_result_numbers = Struct(">qqq").pack
"""Base offset, append time, log start."""

pack_size_and_correlation_id = Struct(">ii").pack

# Fetch, as a request

_START = "iiibii"  # wait, min and max bytes, isolation level, session id and epoch
_POSITION = "iiqiqi"  # partition, leader epoch, offset, last fetched epoch, log start, max bytes

fetch_start = Struct(f">{_START}")
fetch_position = Struct(f">{_POSITION}")
POSITION_BYTES: Final = fetch_position.size + len(NO_TAGS)

fetch_of_one = Struct(f">{_START}B{UUID_BYTES}sB{_POSITION}5s")
"""A consumer's for one partition: the start; one topic, one partition, its position; END_OF_ONE."""

END_OF_ONE: Final = b"\0\0\1\1\0"  # no tags of either, nothing forgotten, no rack, no tags
fetch_of_none = Struct(f">{_START}4s")
"""A consumer's that names nothing: the start; NOTHING_NAMED."""

NOTHING_NAMED: Final = b"\1\1\1\0"  # no topics, nothing forgotten, no rack, no tags
follower_end = Struct(">BBBBBiqB")
"""A follower's end: nothing forgotten, no rack, one tagged field; replica id, broker epoch, no tags."""

_REPLICA_STATE_BYTES = 13  # a replica id, a broker epoch, no tags
replica_state = Struct(">BBBiqx")
REPLICA_STATE: Final = (1, 1, _REPLICA_STATE_BYTES)
"""One tagged field: number 1, of so many bytes."""

FOLLOWER_END_BEGINS: Final = (COUNT_OF_NONE, COUNT_OF_NONE, *REPLICA_STATE)

# Fetch, as an answer

_HEAD = "iiBihi"  # size, correlation id, no tags, throttle time, error code, session id
_PARTITION = "ihqqqBi"  # index, error, high watermark, last stable offset, log start, aborted, other replica

fetch_answer_head = Struct(f">{_HEAD}")
fetch_answer_partition = Struct(f">{_PARTITION}")
_answer_of_one = Struct(f">{_HEAD}B{UUID_BYTES}sB{_PARTITION}")
pack_answer_of_one = _answer_of_one.pack
"""The head; one topic, one partition; the records' length, the records and END_OF_ANSWER follow."""

ANSWER_OF_ONE_BYTES: Final = _answer_of_one.size - SIZE_BYTES
_answer_of_none = Struct(f">{_HEAD}BB")
pack_answer_of_none = _answer_of_none.pack
"""The head; no topics, no tags."""

ANSWER_OF_NONE_BYTES: Final = _answer_of_none.size - SIZE_BYTES
END_OF_ANSWER: Final = b"\0\0\0"  # no tags of the partition, of the topic, of the answer
pack_diverging_epoch = Struct(">BBBiqB").pack
"""One tagged field, DIVERGING_EPOCH; epoch, end offset, no tags."""

DIVERGING_EPOCH: Final = (1, 0, 13)
"""One tagged field: number 0, of so many bytes."""
