"""The messages of logical replication, as PostgreSQL 15 wrote them."""

from datetime import UTC, datetime

import pytest

from moldau.pipelines.sources.postgres_output import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    OutputError,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
)

AT = datetime(2026, 11, 16, 6, 7, 39, 491792, UTC)
BEGIN = "42000000000152e6c00003035d4de4b3d0000002d9"
COMMIT = "4300000000000152e6c0000000000152e6f00003035d4de4b3d0"
RELATION = (
    "52000040007075626c696300766973697473006400030169640000000017ffffffff"
    "00706167650000000019ffffffff00626f64790000000019ffffffff"
)
TRUNCATE = "54000000010000004000"
CAPTURED: dict[str, Message] = {
    RELATION: Relation(
        0x4000,
        "public",
        "visits",
        (RelationColumn("id", 23, True), RelationColumn("page", 25, False), RelationColumn("body", 25, False)),
    ),
    "49000040004e000374000000013774000000067072696365736e": Insert(0x4000, (b"7", b"prices", None)),
    "55000040004e0003740000000137740000000561626f75746e": Update(0x4000, None, False, (b"7", b"about", None)),
    # with another key: the old one comes along
    "55000040004b00037400000001376e6e4e0003740000000138740000000561626f75746e": Update(
        0x4000, (b"7", None, None), False, (b"8", b"about", None)
    ),
    # a large value that was not touched, and an empty text
    "55000040004e0003740000000138740000000075": Update(0x4000, None, False, (b"8", b"", UNCHANGED)),
    "44000040004b00037400000001386e6e": Delete(0x4000, (b"8", None, None), False),
    # REPLICA IDENTITY FULL: the old row comes along
    "55000040074f00027400000001317400000001614e0002740000000131740000000162": Update(
        0x4007, (b"1", b"a"), True, (b"1", b"b")
    ),
    "44000040074f0002740000000131740000000162": Delete(0x4007, (b"1", b"b"), True),
}


@pytest.mark.parametrize("data", CAPTURED)
def test_a_change_is_read_as_it_was_written(data: str) -> None:
    assert decode(bytes.fromhex(data)) == CAPTURED[data]


def test_a_transaction_says_when_and_where_it_was_committed() -> None:
    begin, commit = decode(bytes.fromhex(BEGIN)), decode(bytes.fromhex(COMMIT))
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert begin.commit_lsn == commit.commit_lsn == 0x152E6C0
    assert commit.end_lsn == 0x152E6F0
    assert begin.committed_at == commit.committed_at
    assert begin.committed_at.date() == AT.date()


def test_a_truncation_names_its_tables() -> None:
    assert decode(bytes.fromhex(TRUNCATE)) == Truncate((0x4000,))
    with pytest.raises(OutputError, match="a truncation of 2 tables in 4 bytes"):
        decode(bytes.fromhex(TRUNCATE.replace("5400000001", "5400000002")))


def test_what_changes_no_row_is_passed_over() -> None:
    assert decode(b"Y\x00\x00\x00\x01public\x00mood\x00") is None


@pytest.mark.parametrize("data", [BEGIN, COMMIT, *CAPTURED])
def test_a_message_cut_short_anywhere_is_refused(data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(OutputError):
            decode(whole[:size])


@pytest.mark.parametrize("data", [BEGIN, COMMIT, *CAPTURED])
def test_a_byte_too_many_is_refused(data: str) -> None:
    with pytest.raises(OutputError, match="after the end"):
        decode(bytes.fromhex(data) + b"n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"Z", "unknown kind"),
        (b"I\x00\x00\x40\x00N\xff\xff", "-1 columns"),
        (b"I\x00\x00\x40\x00N\x7f\xff", "32767 columns"),
        (b"I\x00\x00\x40\x00N\x00\x01t\xff\xff\xff\xff", "ends early"),
        (b"I\x00\x00\x40\x00K\x00\x00", "expected"),
        (b"I\x00\x00\x40\x00N\x00\x01x", "expected"),
        (b"B" + bytes(8) + b"\x7f" + bytes(11), "out of range"),
        (b"R\x00\x00\x40\x00\xff\x00v\x00d\x00\x00", "no text"),
    ],
)
def test_nonsense_is_refused_with_words(data: bytes, words: str) -> None:
    with pytest.raises(OutputError, match=words):
        decode(data)
