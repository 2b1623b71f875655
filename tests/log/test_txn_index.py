"""The index of aborted transactions."""

from moldau.core.memory_files import MemoryFiles
from moldau.log.txn_index import AbortedTxn, TxnIndex

PATH = "/d/00000000000000000000.txnindex"


def index_of(*aborted: AbortedTxn) -> tuple[MemoryFiles, TxnIndex]:
    files = MemoryFiles()
    files.make_directory("/d")
    index = TxnIndex(files, PATH)
    for each in aborted:
        index.append(each)
    return files, index


def test_an_entry_is_a_version_and_four_numbers() -> None:
    files, index = index_of(AbortedTxn(7, 11, 21, 22))
    assert files.read(PATH).hex(" ", 8) == bytes.fromhex(
        "0000 0000000000000007 000000000000000b 0000000000000015 0000000000000016"
    ).hex(" ", 8)
    assert list(index) == [AbortedTxn(7, 11, 21, 22)]


def test_there_is_no_file_without_an_aborted_transaction() -> None:
    files, index = index_of()
    assert list(index) == []
    assert not files.exists(PATH)


def test_truncation_keeps_what_ended_before() -> None:
    _, index = index_of(AbortedTxn(1, 0, 10, 11), AbortedTxn(2, 5, 20, 21), AbortedTxn(3, 15, 30, 31))
    index.truncate_to(20)
    assert [each.producer_id for each in index] == [1]


def test_a_torn_entry_is_written_over() -> None:
    files, index = index_of(AbortedTxn(1, 0, 10, 11))
    files.open(PATH).append([b"torn"])
    index.append(AbortedTxn(2, 5, 20, 21))
    assert [each.producer_id for each in index] == [1, 2]


def test_a_reader_behind_all_that_was_aborted_does_not_read_the_file() -> None:
    files, _ = index_of(AbortedTxn(1, 0, 10, 11))
    index = TxnIndex(files, PATH)
    assert [index.reaches(each) for each in (0, 10, 11)] == [True, True, False]
    files.remove(PATH)
    assert [index.reaches(each) for each in (10, 11)] == [True, False], "it is known"
    _, index = index_of(AbortedTxn(1, 0, 10, 11))
    index.append(AbortedTxn(2, 11, 12, 13))
    assert index.reaches(12)
    index.truncate_to(12)
    assert [index.reaches(each) for each in (10, 12)] == [True, False]
    index.reset()
    assert not index.reaches(0)
