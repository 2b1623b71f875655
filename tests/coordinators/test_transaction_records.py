"""Records of `__transaction_state` against what Kafka's own classes wrote (`vectors/TransactionRecords.java`)."""

from pathlib import Path

import pytest

from moldau.coordinators.records import CoordinatorRecord, encode_record
from moldau.coordinators.transactions.record_tables import (
    LAST_EPOCH_UNKNOWN,
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
)
from moldau.coordinators.transactions.state import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    STATE_IDS,
    STATES,
    TRANSITIONS,
    check_transition,
    diagram,
)
from moldau.coordinators.transactions.transaction import Transaction, record_of, transaction_of
from moldau.core.ids import TopicPartition
from moldau.core.invariants import InvariantError
from moldau.protocol.codec import encode
from moldau.protocol.errors import ProtocolError

PARTITIONS = frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("__consumer_offsets", 7)})
PLAIN = 0
FLEXIBLE = 1


def read_vectors() -> list[tuple[bytes, bytes | None]]:
    lines = (Path(__file__).parent / "vectors" / "transaction_records.txt").read_text().splitlines()
    pairs = [line.split() for line in lines]
    return [(bytes.fromhex(key), None if value == "null" else bytes.fromhex(value)) for key, value in pairs]


def decoded(key: bytes, value: bytes | None) -> tuple[str, TransactionLogValue | None]:
    record = TRANSACTION_RECORDS.decode(key, value)
    assert record is not None
    assert isinstance(record.key, TransactionLogKey)
    assert record.value is None or isinstance(record.value, TransactionLogValue)
    return record.key.transactional_id, record.value


def kafkas(number: int) -> Transaction:
    _, value = decoded(*read_vectors()[number])
    assert value is not None
    return transaction_of(value)


def test_what_kafka_wrote_is_written_again_to_the_byte() -> None:
    for key, value in read_vectors():
        transactional_id, decoded_value = decoded(key, value)
        assert encode_record(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))[0] == key
        if value is not None:
            assert decoded_value is not None
            version = int.from_bytes(value[:2], "big")
            assert value[:2] + encode(decoded_value, version) == value


def test_what_kafka_wrote_is_understood() -> None:
    assert decoded(*read_vectors()[0])[0] == "grüße"
    assert kafkas(0) == kafkas(1)
    assert kafkas(0) == Transaction(4000, 3, 60_000, EMPTY, 1_700_000_000_000)
    started_ms = 1_700_000_000_001
    assert kafkas(2) == Transaction(4000, 3, 60_000, ONGOING, 1_700_000_000_000, PARTITIONS, started_ms)
    assert kafkas(3) == kafkas(2)._replace(previous_producer_id=4000, client_version=2)
    assert kafkas(4).state is PREPARE_COMMIT
    assert kafkas(4).next_producer == (5000, 0)
    assert kafkas(6).next_producer_epoch == 9
    assert decoded(*read_vectors()[7]) == ("copier", None)


def test_the_last_epoch_is_worked_out_where_kafka_does_not_write_it() -> None:
    assert kafkas(3).last_producer_epoch == -1
    assert kafkas(4).last_producer_epoch == 32766
    assert kafkas(5).state is COMPLETE_COMMIT
    assert kafkas(5).producer == (5000, 0)
    assert kafkas(5).last_producer_epoch == 32766


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_says_all_that_is_known(version: int) -> None:
    transaction = Transaction(5, 6, 7, PREPARE_COMMIT, 8, PARTITIONS, 9, 10, 11, 12, 2, 13)
    key, value = encode_record(record_of("id", transaction, version))
    assert value is not None
    assert value[:2] == FLEXIBLE.to_bytes(2, "big")
    _, found = decoded(key, value)
    assert found is not None
    assert transaction_of(found) == transaction


def test_before_version_1_a_record_is_written_that_old_brokers_read() -> None:
    transaction = Transaction(5, 6, 7, PREPARE_COMMIT, 8, PARTITIONS, 9, 10, 11, 12, 2)
    key, value = encode_record(record_of("id", transaction, 0))
    assert value is not None
    assert value[:2] == PLAIN.to_bytes(2, "big")
    _, found = decoded(key, value)
    assert found is not None
    assert found.last_producer_epoch == LAST_EPOCH_UNKNOWN
    assert transaction_of(found) == Transaction(5, 6, 7, PREPARE_COMMIT, 8, PARTITIONS, 9)


def test_an_empty_transaction_has_no_list_of_partitions_as_in_kafka() -> None:
    value = record_of("id", Transaction(5, 6, 7, EMPTY, 8), 1).value
    assert isinstance(value, TransactionLogValue)
    assert value.transaction_partitions is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\7\0\2id", b"\0\0"),
        (b"\0\0\0\2id", b"\0\2" + bytes(50)),
        (b"\0", None),
        (b"\0\0\0\2id", b"\0\0\0"),
    ],
)
def test_what_is_unknown_or_torn_is_refused_so_that_loading_says_that_it_skips_it(
    key: bytes, value: bytes | None
) -> None:
    with pytest.raises((ProtocolError, ValueError)):
        TRANSACTION_RECORDS.decode(key, value)


def test_a_state_of_a_newer_kind_is_refused() -> None:
    value = TransactionLogValue(transaction_status=8, transaction_partitions=None, log_version=PLAIN)
    key, written = encode_record(CoordinatorRecord(TransactionLogKey(transactional_id="id"), value))
    with pytest.raises(ProtocolError, match="state 8"):
        TRANSACTION_RECORDS.decode(key, written)


def test_states_have_kafkas_numbers_and_names() -> None:
    names = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"
    assert [state.value for state in STATES] == names.split()
    assert list(STATE_IDS.values()) == list(range(8))


def test_only_the_transitions_of_the_table_are_made() -> None:
    legal = {
        "Empty": "Empty Ongoing PrepareAbort Dead",
        "Ongoing": "Ongoing PrepareCommit PrepareAbort",
        "PrepareCommit": "CompleteCommit",
        "PrepareAbort": "CompleteAbort",
        "CompleteCommit": "Empty Ongoing PrepareAbort Dead",
        "CompleteAbort": "Empty Ongoing PrepareAbort Dead",
        "Dead": "",
        "PrepareEpochFence": "",
    }
    for old in STATES:
        for new in STATES:
            if new.value in legal[old.value].split():
                check_transition(old, new)
            else:
                with pytest.raises(InvariantError, match=f"from {old.value} to {new.value}"):
                    check_transition(old, new)


def test_the_diagram_has_an_arrow_for_each_transition() -> None:
    printed = diagram()
    assert printed.startswith("stateDiagram-v2")
    assert printed.count("-->") == 1 + sum(map(len, TRANSITIONS.values()))
    assert "    Ongoing --> PrepareCommit: the producer commits" in printed
