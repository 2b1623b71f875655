"""Tables of Kafka's own records in `__transaction_state`.

A record is all that is known of one transactional id; the newest counts. Kafka reads what is written here, and the
other way round: `DumpLogSegments --transaction-log-decoder` prints it, and a data directory can be carried over.
"""

from typing import Final

from moldau.coordinators.records import CoordinatorRecord, RecordKey, RecordTypes, RecordValue
from moldau.coordinators.transactions.state import STATES
from moldau.protocol.errors import ProtocolError
from moldau.protocol.schema import INT8, INT16, INT32, INT64, STRING, Struct, array, field

PLAIN_VALUE: Final = 0
FLEXIBLE_VALUE: Final = 1
"""Written since `transaction.version` 1, for only these have tagged fields (KIP-890)."""

LAST_EPOCH_UNKNOWN: Final = -2
"""Kafka writes no last epoch: a retry of InitProducerId is fenced when the coordinator moved before its answer came
(KAFKA-20310). -1 says that there is none."""


class TransactionLogKey(RecordKey, record_type=0):
    transactional_id: str = field(STRING)


class TransactionPartitions(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(RecordValue, written=FLEXIBLE_VALUE, versions=(0, 1), flexible=1):
    """`last_producer_epoch` is ours, with a tag that Kafka passes over. `log_version` says how to write this one, and
    is not written."""

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[TransactionPartitions] | None = field(array(TransactionPartitions), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, "1+", tag=2, ignorable=True)
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3, ignorable=True)
    last_producer_epoch: int = field(INT16, "1+", default=LAST_EPOCH_UNKNOWN, tag=10_000, ignorable=True)
    log_version: int = field(INT16, "none", default=FLEXIBLE_VALUE, ignorable=True)

    def version_to_write(self) -> int:
        return self.log_version


class _TransactionRecords(RecordTypes):
    """Refuses a key or a state of a newer kind, where others pass over it: whoever loads it says so, as Kafka does."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        record = super().decode(key, value)
        if record is None:
            raise ProtocolError(f"a key of version {int.from_bytes(key[:2], 'big', signed=True)} is unknown")
        if isinstance(record.value, TransactionLogValue) and not 0 <= record.value.transaction_status < len(STATES):
            raise ProtocolError(f"a transaction's state {record.value.transaction_status} is unknown")
        return record


TRANSACTION_RECORDS = _TransactionRecords({TransactionLogKey: TransactionLogValue})
