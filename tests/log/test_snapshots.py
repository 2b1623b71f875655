"""Producer state on disk."""

import time

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.log.producers import PRODUCERS_MAX, ProducerEntry, Producers
from moldau.log.snapshots import CorruptSnapshotError, Snapshots, parse_snapshot, render_snapshot
from tests.log.helpers import NOW_MS, idempotent, transactional

# What Apache Kafka 4.3.1 wrote for one producer: id 5, epoch 0, last sequence 14999, last offset 14999, 50 records.
KAFKA_HEAD = "0001"
KAFKA_ROW = "0000000000000005 0000 00003a97 0000000000003a97 00000031 000001a1e18bb038 ffffffff ffffffffffffffff"


def producers_with(count: int) -> Producers:
    producers = Producers()
    for number in range(count):
        producers.update(idempotent(number).header, number, NOW_MS)
    return producers


def seen(entry: ProducerEntry) -> tuple[object, ...]:
    return entry.producer_id, entry.epoch, tuple(entry.batches), entry.current_txn_first_offset, entry.coordinator_epoch


def test_a_row_is_laid_out_as_kafka_lays_it_out() -> None:
    producers = Producers()
    header = idempotent(14950, 50, producer_id=5).header._replace(max_timestamp=0x1A1E18BB038)
    producers.update(header, 14950, NOW_MS)
    data = render_snapshot(producers)
    assert data[:2].hex() == KAFKA_HEAD
    assert data[6:10] == (1).to_bytes(4, "big")
    assert data[10:] == bytes.fromhex(KAFKA_ROW)


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_the_last_five_batches_survive(count: int) -> None:
    before = producers_with(count)
    after = parse_snapshot(render_snapshot(before), NOW_MS)
    assert [seen(entry) for entry in after] == [seen(entry) for entry in before]


def test_an_open_transaction_survives() -> None:
    producers = producers_with(3)
    producers.update(transactional(3).header, 3, NOW_MS)
    restored = Producers()
    restored.load(parse_snapshot(render_snapshot(producers), NOW_MS))
    assert restored.first_open_offset() == 3


def test_any_flipped_bit_or_missing_byte_is_noticed() -> None:
    data = render_snapshot(producers_with(3))
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(bytes(broken), NOW_MS)
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(data[:position], NOW_MS)


def test_a_broken_snapshot_gives_way_to_an_older_one() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    snapshots = Snapshots(files, "/d")
    snapshots.take(producers_with(1), 1)
    snapshots.take(producers_with(2), 2)
    files.open("/d/00000000000000000002.snapshot").truncate(20)
    producers = Producers()
    Snapshots(files, "/d", files.list("/d")).restore(producers, 10, NOW_MS)
    assert producers.map_end_offset == 1
    assert files.list("/d") == ["00000000000000000001.snapshot"]


def test_snapshots_that_stand_at_no_segment_go_except_the_newest() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    snapshots = Snapshots(files, "/d")
    for offset in (0, 5, 10, 12, 15):
        snapshots.take(Producers(), offset)
    snapshots.remove_strays([0, 10])
    assert snapshots.offsets == [0, 10, 15]


def test_a_snapshot_of_what_has_not_changed_costs_next_to_nothing() -> None:
    producers = Producers()
    for number in range(PRODUCERS_MAX):
        producers.update(idempotent(0).header._replace(producer_id=number), number, NOW_MS)
    first = time.thread_time()
    data = render_snapshot(producers)
    again = time.thread_time()
    assert render_snapshot(producers) == data
    assert time.thread_time() - again < (again - first) / 2
    producers.update(idempotent(1).header._replace(producer_id=3), PRODUCERS_MAX, NOW_MS)
    restored = {entry.producer_id: seen(entry) for entry in parse_snapshot(render_snapshot(producers), NOW_MS)}
    assert restored == {entry.producer_id: seen(entry) for entry in producers}
