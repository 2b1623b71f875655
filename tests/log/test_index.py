"""Sparse indexes: what is written, what is found, what is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.memory_files import MemoryFiles
from moldau.log.index import TAIL_BYTES_MAX, CorruptIndexError, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex

PATH = "/d/00000000000000000100.index"


def memory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    return files


def filled(files: MemoryFiles, count: int, *, flushed: int) -> OffsetIndex:
    index = OffsetIndex(files, PATH, 100)
    for number in range(count):
        index.extend([(100 + 10 * number, 5000 * number)])
        if number + 1 == flushed:
            index.entries.flush()
    return index


def test_entries_are_a_relative_offset_and_a_position_in_four_bytes_each() -> None:
    files = memory()
    index = OffsetIndex(files, PATH, 100)
    index.extend([(107, 4242)])
    index.entries.flush()
    assert files.read(PATH) == bytes.fromhex("00000007 00001092")


def test_time_entries_are_a_timestamp_in_eight_bytes_and_a_relative_offset() -> None:
    files = memory()
    index = TimeIndex(files, PATH, 100)
    index.extend([(258, 103)])
    index.entries.flush()
    assert files.read(PATH) == bytes.fromhex("0000000000000102 00000003")


def test_nothing_is_written_before_a_flush() -> None:
    files = memory()
    filled(files, 3, flushed=-1)
    assert not files.exists(PATH)


def test_a_tail_of_some_kilobytes_asks_to_be_flushed() -> None:
    index = OffsetIndex(memory(), PATH, 0)
    asked = [index.extend([(number, number)]) for number in range(TAIL_BYTES_MAX // 8)]
    assert asked == [False] * (len(asked) - 1) + [True]


@given(count=st.integers(0, 3000), data=st.data())
def test_a_look_up_finds_the_last_entry_at_or_below(count: int, data: st.DataObject) -> None:
    index = filled(memory(), count, flushed=data.draw(st.integers(0, count)))
    for _ in range(5):
        offset = data.draw(st.integers(90, 110 + 10 * count))
        guess = data.draw(st.floats(0, 1))
        below = (offset - 100) // 10
        expected = None if offset < 100 or not count else min(below, count - 1)
        found = index.last_for_offset(offset, guess)
        assert found == (None if expected is None else OffsetEntry(100 + 10 * expected, 5000 * expected))
        if expected is not None:
            assert index.last_for_position(5000 * expected + 4999, guess) == found


@given(count=st.integers(0, 700), flushed=st.integers(0, 700), kept=st.integers(0, 700))
def test_truncation_keeps_the_entries_below_an_offset(count: int, flushed: int, kept: int) -> None:
    index = filled(memory(), count, flushed=min(flushed, count))
    index.last_for_offset(10**6)
    index.truncate_to(100 + 10 * kept)
    assert len(index.entries) == min(count, kept)
    expected = min(count, kept) - 1
    assert index.last() == (None if expected < 0 else OffsetEntry(100 + 10 * expected, 5000 * expected))
    assert index.last_for_offset(10**6) == index.last()


def test_times_that_do_not_rise_are_left_out() -> None:
    index = TimeIndex(memory(), PATH, 0)
    index.extend([(10, 1), (10, 2)])
    index.extend([(9, 3), (11, 4)])
    assert len(index.entries) == 2
    assert index.last() == TimeEntry(11, 4)
    assert index.last_for_timestamp(10) == TimeEntry(10, 1)
    assert index.last_for_timestamp(9) is None


def test_an_index_that_was_there_goes_on_after_its_last_entry() -> None:
    files = memory()
    filled(files, 5, flushed=5)
    index = OffsetIndex(files, PATH, 100)
    index.extend([(999, 99999)])
    index.entries.flush()
    assert len(index.entries) == 6
    assert index.last() == OffsetEntry(999, 99999)


def test_a_missing_file_is_noticed() -> None:
    with pytest.raises(CorruptIndexError, match="missing"):
        OffsetIndex(memory(), PATH, 0).check(1000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("00000001 000000", "inside an entry"),
        ("00000001 00002000", "last entry"),
        ("00000001 00000010 00000000 00000000", "last entry"),
        ("80000001 00000010", "last entry"),
    ],
    ids=["torn", "position past the log", "zero padding", "negative offset"],
)
def test_an_index_that_cannot_be_right_is_noticed(content: str, reason: str) -> None:
    files = memory()
    files.write_atomically(PATH, bytes.fromhex(content))
    with pytest.raises(CorruptIndexError, match=reason):
        OffsetIndex(files, PATH, 0).check(4096)


def test_a_time_index_whose_last_entry_is_before_its_first_is_noticed() -> None:
    files = memory()
    files.write_atomically(PATH, bytes.fromhex("0000000000000102 00000003") + bytes(12))
    with pytest.raises(CorruptIndexError, match="before the first"):
        TimeIndex(files, PATH, 0).check()
