"""Compaction: what stays, what goes, and that nobody notices but the disk."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.core.clock import ManualClock
from moldau.core.config import LONG_MAX
from moldau.core.real_files import RealFiles
from moldau.log.compaction.cleaner import Transactions, clean, fits
from moldau.log.compaction.job import (
    CleanJob,
    Source,
    discard,
)
from moldau.log.compaction.policy import clean_job
from moldau.log.log import Log
from moldau.log.txn_index import AbortedTxn
from moldau.records.batch import (
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    read_header,
    split_batches,
)
from moldau.records.compression import Codec
from moldau.records.validate import prepare_own_batch
from tests.log.compaction.cleaning import CONFIG, RETENTION_MS, SUFFIX, compact, due, headers, new_log, pairs, put
from tests.log.helpers import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    append,
    batches,
    marker,
    offsets,
    open_log,
    records,
)
from tests.log.test_kafka_tools import dump

# What stays


def test_of_every_key_the_last_record_stays_at_its_offset() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"))
    put(log, (b"b", b"2"))
    compact(files, log)
    assert pairs(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert log.log_end_offset == 5


def test_a_batch_keeps_its_range_of_offsets_and_its_timestamps() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"))
    put(log, (b"c", b"2"))
    before = {record.offset: record for record in records(log)}
    compact(files, log)
    assert (headers(log)[0].base_offset, headers(log)[0].last_offset) == (0, 3)
    assert headers(log)[0].max_timestamp == NOW_MS + 2
    assert all(before[record.offset] == record for record in records(log))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_stays_compressed(codec: Codec) -> None:
    files, log = new_log()
    put(log, (b"a", b"1" * 100), (b"b", b"1" * 100), codec=codec)
    put(log, (b"a", b"2"), codec=codec)
    compact(files, log)
    assert pairs(log) == [(1, b"b", b"1" * 100), (2, b"a", b"2")]
    assert {header.codec for header in headers(log)} == {codec}


def test_a_batch_that_loses_nothing_is_kept_byte_for_byte() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    before = [bytes(data) for _, data in batches(log)]
    compact(files, log)
    assert [bytes(data) for _, data in batches(log)] == before


def test_headers_of_records_stay() -> None:
    files, log = new_log()
    rows = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS, b"b", None, (("h", b"x"), ("n", None)))]
    append(log, prepare_own_batch(build_batch(rows)))
    put(log, (b"a", b"2"))
    compact(files, log)
    assert records(log)[0] == rows[1]


def test_a_record_without_a_key_goes() -> None:
    files, log = new_log()
    put(log, (None, b"1"), (b"a", b"1"))
    compact(files, log)
    assert pairs(log) == [(1, b"a", b"1")]


def test_long_keys_are_told_apart() -> None:
    files, log = new_log()
    long = [b"k" * 4000 + bytes([number]) for number in range(3)]
    put(log, *[(key, b"1") for key in long])
    put(log, (long[1], b"2"))
    compact(files, log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 2, 3]


def test_what_is_in_the_active_segment_is_not_touched() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), (b"a", b"3"))
    assert due(log).end_offset == 1
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    assert [source.base_offset for source in job.sources] == [0]
    assert clean(files, job).clean_offset == 1


def test_the_second_cleaning_takes_away_what_the_first_had_kept() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    compact(files, log)
    put(log, (b"a", b"2"))
    result = compact(files, log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert result.keys == 1  # only what was new had to be remembered


def test_with_more_keys_than_memory_several_cleanings_come_to_the_same() -> None:
    files, log = new_log()
    rows = [(b"%d" % (number % 20), b"%d" % number) for number in range(60)]
    for row in rows:
        put(log, row)
    log.roll(NOW_MS)
    rounds = 0
    while due(log).dirty_bytes:
        compact(files, log, keys_max=7)
        rounds += 1
    assert rounds > 2
    assert {key: value for _, key, value in pairs(log)} == dict(rows)
    assert len(pairs(log)) == 20


# Tombstones (KIP-534)


def test_a_tombstone_stays_for_its_retention_and_goes_with_the_cleaning_after() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    compact(files, log)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None)]
    horizon = headers(log)[1]
    assert horizon.has_delete_horizon
    assert horizon.base_timestamp == NOW_MS + RETENTION_MS
    assert records(log)[1].timestamp == NOW_MS
    put(log, (b"c", b"1"))
    compact(files, log, NOW_MS + RETENTION_MS - 1)
    assert (2, b"a", None) in pairs(log)
    assert headers(log)[1].base_timestamp == NOW_MS + RETENTION_MS
    put(log, (b"d", b"1"))
    compact(files, log, NOW_MS + RETENTION_MS)
    assert pairs(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_values_beside_a_tombstone_keep_their_time() -> None:
    files, log = new_log()
    put(log, (b"a", None), (b"b", b"1"), codec=Codec.LZ4)
    compact(files, log)
    assert [record.timestamp for record in records(log)] == [NOW_MS, NOW_MS + 1]
    assert headers(log)[0].max_timestamp == NOW_MS + 1
    put(log, (b"c", b"1"))
    compact(files, log, NOW_MS + RETENTION_MS)
    assert records(log)[0] == Record(1, NOW_MS + 1, b"b", b"1")


def test_tombstones_kept_for_ever_do_not_overflow() -> None:
    files, log = new_log(replace(CONFIG, delete_retention_ms=LONG_MAX))
    put(log, (b"a", None))
    compact(files, log)
    assert headers(log)[0].base_timestamp == LONG_MAX
    assert records(log)[0].timestamp == NOW_MS


# Producers and transactions


def test_the_last_batch_of_a_producer_stays_empty_so_that_its_sequence_is_known() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"), producer=(7, 0))
    append(log, marker(committed=True))
    put(log, (b"a", b"3"))
    compact(files, log)
    kept = headers(log)[0]
    assert (kept.record_count, kept.base_offset, kept.last_offset, kept.last_sequence) == (0, 0, 1, 1)
    again = open_log(files, CONFIG, clean=False)
    entry = again.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == 1


def test_batches_of_a_producer_before_its_last_go() -> None:
    files, log = new_log()
    for sequence in range(3):
        put(log, (b"a", b"%d" % sequence), producer=(7, sequence))
    append(log, marker(committed=True))
    put(log, (b"a", b"end"))
    compact(files, log)
    assert [(header.base_offset, header.is_control) for header in headers(log)] == [(2, False), (3, True), (4, False)]


def test_aborted_records_go_and_do_not_hide_what_was_before() -> None:
    files, log = new_log()
    put(log, (b"a", b"good"))
    put(log, (b"a", b"bad"), producer=(7, 0))
    append(log, marker(committed=False))
    put(log, (b"b", b"1"))
    compact(files, log)
    assert pairs(log) == [(0, b"a", b"good"), (3, b"b", b"1")]
    assert log.aborted_transactions(0, log.log_end_offset) == [AbortedTxn(7, 1, 2, 3)]


def test_a_marker_goes_when_nothing_of_its_transaction_is_left() -> None:
    files, log = new_log()
    put(log, (b"a", b"bad"), producer=(7, 0))
    put(log, (b"b", b"bad"), producer=(7, 1))
    append(log, marker(committed=False))
    put(log, (b"x", b"1"), producer=(7, 2))
    append(log, marker(committed=True))
    put(log, (b"z", b"1"))
    now_ms = NOW_MS

    def control_offsets() -> list[int]:
        return [header.base_offset for header in headers(log) if header.is_control]

    compact(files, log)
    assert control_offsets() == [2, 4]
    assert log.aborted_transactions(0, log.log_end_offset) != []
    put(log, (b"z", b"2"))
    compact(files, log)  # nothing is left of the aborted one: from now on its marker counts as a tombstone
    assert control_offsets() == [2, 4]
    assert log.aborted_transactions(0, log.log_end_offset) == []
    now_ms += RETENTION_MS
    put(log, (b"z", b"3"))
    compact(files, log, now_ms)
    assert control_offsets() == [4]
    assert pairs(log) == [(3, b"x", b"1"), (7, b"z", b"3")]


def test_the_marker_of_a_transaction_may_lie_in_the_active_segment() -> None:
    files, log = new_log()
    put(log, (b"a", b"good"))
    put(log, (b"a", b"bad"), producer=(7, 0))
    log.roll(NOW_MS)
    append(log, marker(committed=False))
    assert due(log).end_offset == 2
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    result = clean(files, job)
    assert log.stage_segment(job, result.groups[0])
    assert log.replace_segments(job, result.groups[0])
    assert pairs(log)[:1] == [(0, b"a", b"good")]
    assert all(value != b"bad" for _, _, value in pairs(log))


def test_an_open_transaction_is_not_cleaned() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), producer=(7, 0))
    log.roll(NOW_MS)
    put(log, (b"a", b"3"))
    assert due(log).end_offset == 1


def test_a_marker_that_was_emptied_tells_producers_nothing() -> None:
    files, log = new_log()
    append(log, marker(committed=True))
    put(log, (b"a", b"1"))
    for _ in range(2):
        compact(files, log)
        put(log, (b"a", b"1"))
    compact(files, log, NOW_MS + RETENTION_MS)
    first = headers(log)[0]
    assert (first.is_control, first.record_count) == (True, 0)
    assert open_log(files, CONFIG, clean=False).producers.get(7) is None


def test_transactions_of_one_producer_are_told_apart() -> None:
    transactions = Transactions([AbortedTxn(7, 10, 12, 13), AbortedTxn(7, 0, 2, 3)])
    template = read_header(build_batch([Record(0, 0, b"a", b"1")], producer_id=7, is_transactional=True))

    def end_at(offset: int, committed: bool) -> bool:
        batch = build_end_txn_marker(
            EndTxnMarker(committed, 0), producer_id=7, producer_epoch=0, timestamp=0, base_offset=offset
        )
        return transactions.is_spent(read_header(batch), batch)

    assert transactions.is_aborted(template)
    assert not transactions.is_aborted(template._replace(base_offset=1, producer_id=8))
    assert not end_at(2, committed=False)
    assert not transactions.is_aborted(template._replace(base_offset=4))
    assert not end_at(5, committed=True)
    assert end_at(6, committed=True)
    assert transactions.is_aborted(template._replace(base_offset=10))
    assert not end_at(12, committed=False)
    assert end_at(13, committed=False)
    assert [each.first_offset for each in transactions.kept] == [0, 10]


# Files


def test_small_segments_are_merged() -> None:
    files, log = new_log()
    for number in range(9):
        put(log, (b"%d" % number, b"1"))
        log.roll(NOW_MS)
    compact(files, log)
    assert [segment.base_offset for segment in log.segments] == [0, 9]
    assert offsets(log) == list(range(9))
    assert log.size_bytes == sum(segment.size for segment in log.segments)


def test_segments_are_merged_while_there_is_room_for_what_is_left_of_them() -> None:
    files, log = new_log(replace(CONFIG, segment_bytes=1000))
    for number in range(40):
        put(log, (b"%d" % (number % 4), b"x" * 100))
    assert len(log.segments) > 6
    compact(files, log)
    assert [segment.base_offset for segment in log.segments] == [0, 40]
    assert offsets(log) == [36, 37, 38, 39]


JOB = CleanJob("", [], [], 0, 1000, 0, 0, 100, 1 << 20, 4096, 1, {}, SUFFIX, 0)


@pytest.mark.parametrize(
    ("group", "written", "size", "next_base", "answer"),
    [
        (1, 40, 60, 20, True),
        (1, 41, 60, 20, False),
        (31, 0, 1, 20, True),
        (32, 0, 1, 20, False),
        (1, 0, 1, 1 << 31, True),
        (1, 0, 1, (1 << 31) + 1, False),
    ],
)
def test_what_fits_into_a_segment(group: int, written: int, size: int, next_base: int, answer: bool) -> None:
    assert fits([Source(0, 100)] * group, written, Source(10, size), next_base, JOB) == answer


def test_a_reader_passes_over_a_segment_that_was_emptied() -> None:
    files, log = new_log(replace(CONFIG, segment_bytes=100))
    for number in range(70):
        put(log, (b"a", b"%d" % number))
    compact(files, log)
    assert log.segments.first.is_emptied()
    region = log.read(0, 1 << 20, log.log_end_offset)
    assert region is not None
    assert [header.base_offset for header, _ in split_batches(region.read())] == [69]


def test_no_file_of_the_cleaning_is_left_behind() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    compact(files, log)
    names = files.list(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    log.remove_doomed(NOW_MS + CONFIG.file_delete_delay_ms)
    assert not [name for name in files.list(DIRECTORY) if name.endswith(".deleted")]


def test_a_reader_of_the_old_file_reads_on() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    region = log.read(0, 1 << 20, 2)
    assert region is not None
    before = region.read()
    compact(files, log)
    log.remove_doomed(NOW_MS + CONFIG.file_delete_delay_ms)
    assert region.read() == before


def test_every_offset_can_still_be_asked_for() -> None:
    files, log = new_log()
    for number in range(50):
        put(log, (b"%d" % (number % 3), b"1"), (b"%d" % (number % 7), b"2"))
    compact(files, log)
    kept = offsets(log)
    for offset in range(100):
        assert offsets(log, offset, max_bytes=1) == [each for each in kept if each >= offset]


def test_indexes_are_found_right() -> None:
    files, log = new_log()
    for number in range(100):
        put(log, (b"%d" % (number % 60), b"x" * 50), timestamp=NOW_MS + number * 10)
    compact(files, log)
    again = open_log(files, CONFIG)
    segment = again.segments.first
    count = len(segment.index.entries)
    assert count > 10
    found = again.offset_for_timestamp(NOW_MS + 500)
    assert found is not None
    assert (found.offset, found.timestamp) == (50, NOW_MS + 500)
    segment.rebuild_indexes()
    assert len(segment.index.entries) == count


@pytest.mark.parametrize("state", ["cleaned", "staged", "half swapped", "swapped"])
def test_power_may_fail_at_any_step(state: str) -> None:
    files, log = new_log()
    for number in range(6):
        put(log, (b"%d" % (number % 2), b"%d" % number))
        log.roll(NOW_MS)
    log.sync()
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    result = clean(files, job)
    if state != "cleaned":
        assert log.stage_segment(job, result.groups[0])
        files.sync_directory(DIRECTORY)
    if state == "half swapped":
        for source in job.sources[2:]:
            path = f"{DIRECTORY}/{source.base_offset:020d}.log"
            files.rename(path, path + ".deleted")
    if state == "swapped":
        assert log.replace_segments(job, result.groups[0])
    if state != "swapped":
        files.sync_directory(DIRECTORY)
    files.power_loss()
    again = open_log(files, CONFIG, clean=False, recovery_point=log.recovery_point)
    assert {key: value for _, key, value in pairs(again)} == {b"0": b"4", b"1": b"5"}
    assert again.log_end_offset == 6
    assert len(pairs(again)) == (6 if state == "cleaned" else 2)
    assert not [name for name in files.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_the_end_of_a_group_stays_known_though_its_last_batch_is_gone() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (None, b"no key"))
    compact(files, log)
    assert [(header.base_offset, header.record_count) for header in headers(log)] == [(0, 1), (1, 0)]


def test_a_result_is_not_used_if_the_log_has_changed_meanwhile() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    result = clean(files, job)
    assert log.stage_segment(job, result.groups[0])
    log.truncate_to(1)
    assert not log.replace_segments(job, result.groups[0])
    discard(files, job)
    assert not [name for name in files.list(DIRECTORY) if name.endswith((".cleaned", ".swap"))]
    assert pairs(log) == [(0, b"a", b"1")]


def test_a_result_is_not_used_if_the_log_was_cut_and_has_grown_to_the_same_size() -> None:
    files, log = new_log()
    for value in (b"1", b"2"):
        put(log, (b"a", value))
        log.roll(NOW_MS)
    job = clean_job(due(log), now_ms=NOW_MS, keys_max=10, suffix=SUFFIX)
    result = clean(files, job)
    log.truncate_to(1)
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    assert [(each.base_offset, each.size) for each in log.segments][:2] == list(job.sources)
    assert not log.stage_segment(job, result.groups[0])
    assert pairs(log) == [(0, b"a", b"1"), (1, b"a", b"3")]


def test_truncation_makes_dirty_what_is_written_anew() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    compact(files, log)
    log.truncate_to(1)
    assert log.clean_offset == 1


def test_left_overs_of_an_earlier_process_do_not_spoil_a_swap() -> None:
    files, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    strays = [
        f"{DIRECTORY}/{0:020d}.log.99.cleaned",
        f"{DIRECTORY}/{0:020d}.index.swap",
        f"{DIRECTORY}/{0:020d}.log.swap",
    ]
    for stray in strays:
        files.write_atomically(stray, b"")
    compact(files, log)
    assert not any(map(files.exists, strays))
    assert pairs(log) == [(1, b"a", b"2")]


# Kafka's own tool


def test_kafka_reads_what_is_left(kafka_classpath: str, tmp_path: Path) -> None:
    directory = tmp_path / str(PARTITION)
    files = RealFiles()
    log = Log.open(files, ManualClock(NOW_MS), str(directory), PARTITION, CONFIG)
    for number in range(40):
        put(log, (b"%d" % (number % 25), b"v" * 50), (b"same", b"%d" % number), codec=number % 5)
    put(log, (b"7", None), (b"new", None), codec=Codec.ZSTD)
    put(log, (b"a", b"bad"), producer=(7, 0))
    append(log, marker(committed=False))
    put(log, (b"b", b"good"), producer=(7, 1))
    append(log, marker(committed=True))
    put(log, (b"b", b"better"))
    compact(files, log)
    put(log, (b"end", b""))
    compact(files, log, NOW_MS + 1)
    log.close()
    said = dump(kafka_classpath, directory, (".log",), "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in said
    dumped = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.M)]
    assert dumped == offsets(log)
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + RETENTION_MS}]" in said
    assert re.search(r"producerId: 7 .* baseSequence: 1 |baseSequence: 1 .*producerId: 7", said)
    assert len(re.findall(r"endTxnMarker", said)) == 2
    checked = dump(kafka_classpath, directory, (".index", ".timeindex"), "--verify-index-only")
    assert not [line for line in checked.splitlines() if not re.match(r"Dumping |.* is empty\.$", line)]
