"""What a log is after the worst: torn tails, broken bytes, lost files, half-done work."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.files import FILLER
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.leader_epochs import EpochStart
from moldau.log.log import Log
from moldau.log.txn_index import AbortedTxn
from moldau.protocol.errors import ApiError
from tests.log.helpers import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    fill,
    idempotent,
    marker,
    offsets,
    open_log,
    records,
    segment_names,
    sized_batch,
    small_segments,
    transactional,
)
from tests.selection import examples

FILLED = bytes([FILLER]) * 1000
FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"
FIRST_INDEX = f"{DIRECTORY}/{0:020d}.index"
FIRST_TIME_INDEX = f"{DIRECTORY}/{0:020d}.timeindex"


def content(files: MemoryFiles) -> dict[str, bytes]:
    return {name: files.read(f"{DIRECTORY}/{name}") for name in files.list(DIRECTORY)}


def copy_of(files: MemoryFiles, **changed: bytes) -> MemoryFiles:
    """The directory as a crash would leave it now, with the first segment's files `changed`."""
    copy = MemoryFiles()
    copy.make_directory(DIRECTORY)
    for name, data in content(files).items():
        suffix = name.rpartition(".")[2]
        is_first = name.startswith(f"{0:020d}")
        copy.write_atomically(f"{DIRECTORY}/{name}", changed.get(suffix, data) if is_first else data)
    return copy


def three_batches(files: MemoryFiles) -> tuple[Log, list[int]]:
    """A log of three batches and where each ends."""
    log = open_log(files)
    ends = []
    for value in (b"one", b"two" * 50, b"three"):
        append(log, batch(value, value))
        ends.append(log.size_bytes)
    return log, ends


def test_a_tail_torn_at_any_byte_is_cut_to_whole_batches() -> None:
    files = MemoryFiles()
    _, ends = three_batches(files)
    data = files.read(FIRST_LOG)
    for size in range(len(data) + 1):
        torn = copy_of(files, log=data[:size])
        log = open_log(torn, clean=False)
        whole = sum(1 for end in ends if end <= size)
        assert offsets(log) == list(range(2 * whole))
        assert torn.open(FIRST_LOG).size() == ([0, *ends])[whole]
        assert append(log, batch(b"new")) == 2 * whole


def test_a_broken_byte_anywhere_ends_the_log_before_its_batch() -> None:
    files = MemoryFiles()
    _, ends = three_batches(files)
    data = files.read(FIRST_LOG)
    outside_of_the_checksum = {*range(12, 16)}  # leader epoch: nothing can tell
    for position in range(ends[0], len(data)):
        start = ends[0] if position < ends[1] else ends[1]
        if position - start in outside_of_the_checksum:
            continue
        broken = bytearray(data)
        broken[position] ^= 0x41
        log = open_log(copy_of(files, log=bytes(broken)), clean=False)
        if position - start < 8 and offsets(log) == [0, 1, 2, 3, 4, 5]:
            pytest.fail(f"a changed base offset at {position} went unnoticed")
        assert offsets(log)[: 2 * ends.index(start) + 2] == list(range(2 * ends.index(start) + 2))


@pytest.mark.parametrize(
    "garbage",
    [bytes(100), b"\xff" * 100, b"garbage" * 20, FILLED, FILLED[:5]],
    ids=["zeros", "ones", "text", "filler", "little filler"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_bytes_after_the_last_batch_are_cut_off(garbage: bytes, clean: bool) -> None:
    files = MemoryFiles()
    log, ends = three_batches(files)
    log.close()
    files.open(FIRST_LOG).append([garbage])
    again = open_log(files, clean=clean)
    assert offsets(again) == list(range(6))
    assert files.open(FIRST_LOG).size() == ends[-1]


def test_a_batch_that_was_being_written_over_filler_is_cut_off() -> None:
    """Whatever part of it came to the disk."""
    files = MemoryFiles()
    _, ends = three_batches(files)
    whole = files.read(FIRST_LOG)
    for size in range(ends[1], ends[2]):
        log = open_log(copy_of(files, log=whole[:size] + FILLED), clean=False)
        assert offsets(log) == [0, 1, 2, 3]
        assert log.size_bytes == ends[1]


def test_a_segment_that_ends_in_filler_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    """Trimmed when it was sealed, but a power loss may take that back."""
    files = MemoryFiles()
    config = small_segments(1000)
    fill(open_log(files, config), 9)
    sizes = [len(files.read(f"{DIRECTORY}/{name}")) for name in segment_names(files)]
    for name in segment_names(files)[1:3]:
        files.open(f"{DIRECTORY}/{name}").append([FILLED])
    log = open_log(files, config, clean=False)
    assert offsets(log) == list(range(9))
    assert [segment.size for segment in log.segments] == sizes
    assert log.size_bytes == sum(sizes)
    assert caplog.messages == []


def test_segments_after_a_broken_one_are_dropped() -> None:
    files = MemoryFiles()
    config = small_segments(1000)
    fill(open_log(files, config), 9)
    second = bytearray(files.read(f"{DIRECTORY}/{2:020d}.log"))
    second[-1] ^= 1
    files.write_atomically(f"{DIRECTORY}/{2:020d}.log", bytes(second))
    log = open_log(files, config, clean=False)
    assert offsets(log) == [0, 1, 2]
    assert segment_names(files) == [f"{base:020d}.log" for base in (0, 2)]
    assert log.size_bytes == sum(segment.size for segment in log.segments)


@pytest.mark.parametrize(("policy", "end"), [("delete", 3), ("compact", 9)])
def test_a_full_segment_that_ends_early_ends_the_log_unless_compaction_may_have_done_it(policy: str, end: int) -> None:
    files = MemoryFiles()
    config = replace(small_segments(1000), cleanup_policy=frozenset({policy}))
    fill(open_log(files, config), 9)
    second = files.open(f"{DIRECTORY}/{2:020d}.log")
    second.truncate(second.size() // 2)
    log = open_log(files, config, clean=False)
    assert offsets(log) == [0, 1, 2, *range(4, end)]


def test_segments_below_the_recovery_point_are_not_looked_at() -> None:
    files = MemoryFiles()
    config = small_segments(1000)
    fill(open_log(files, config), 9)
    first = bytearray(files.read(FIRST_LOG))
    first[-1] ^= 1
    files.write_atomically(FIRST_LOG, bytes(first))
    log = open_log(files, config, clean=False, recovery_point=5)
    assert (log.log_end_offset, len(log.segments)) == (9, 5)
    assert log.recovery_point == 5


def test_an_unclean_start_leaves_the_recovery_point_until_the_next_sync() -> None:
    files = MemoryFiles()
    fill(open_log(files), 5)
    log = open_log(files, clean=False, recovery_point=2)
    assert log.recovery_point == 2
    assert log.sync() == 5


def test_recovery_builds_the_same_indexes_as_a_clean_close() -> None:
    config = small_segments(3000)
    closed, crashed = MemoryFiles(), MemoryFiles()
    for files in (closed, crashed):
        log = open_log(files, config)
        fill(log, 40, size=100)
        append(log, transactional(0))
        append(log, marker(committed=False))
        if files is closed:
            log.close()
    open_log(crashed, config, clean=False).close()
    assert content(closed) == content(crashed)


Corruption = Callable[[bytes], bytes | None]


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda _: None,
        lambda data: data[:-3],
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        lambda data: data + bytes(4096),
        lambda data: data[:8] + bytes(8) + data[16:],
        lambda data: b"".join(data[at : at + 4] + pack(">i", 7) for at in range(0, len(data), 8)),
    ],
    ids=["missing", "torn", "zeros", "ones", "padded", "hole", "wrong positions"],
)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_broken_index_of_an_old_segment_is_rebuilt_when_it_is_needed(corrupt: Corruption, suffix: str) -> None:
    files = MemoryFiles()
    config = small_segments(3000)
    log = open_log(files, config)
    fill(log, 20, size=100)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.{suffix}"
    broken = corrupt(files.read(path))
    files.remove(path)
    if broken is not None:
        files.write_atomically(path, broken)
    again = open_log(files, config)
    for offset in range(20):
        assert offsets(again, offset, max_bytes=700) == list(range(offset, 20))
        if suffix == "index" or broken is None:
            found = again.offset_for_timestamp(NOW_MS + offset)
            assert found is not None
            assert found.offset == offset


def test_sequences_survive_a_clean_restart() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for number in range(8):
        append(log, idempotent(number))
    log.close()
    again = open_log(files)
    assert [again.append_as_leader(idempotent(number), 0, NOW_MS).base_offset for number in range(3, 8)] == [
        3,
        4,
        5,
        6,
        7,
    ]
    assert append(again, idempotent(8)) == 8


@pytest.mark.parametrize("segment_bytes", [400, 10_000])
def test_sequences_survive_a_crash(segment_bytes: int) -> None:
    files = MemoryFiles()
    config = small_segments(segment_bytes)
    log = open_log(files, config)
    for number in range(20):
        append(log, idempotent(number))
    again = open_log(files, config, clean=False, recovery_point=10)
    assert again.append_as_leader(idempotent(16), 0, NOW_MS).duplicate
    assert append(again, idempotent(20)) == 20


def test_sequences_survive_the_loss_of_every_snapshot() -> None:
    files = MemoryFiles()
    config = small_segments(400)
    log = open_log(files, config)
    for number in range(20):
        append(log, idempotent(number))
    log.close()
    for name in segment_names(files, ".snapshot"):
        files.remove(f"{DIRECTORY}/{name}")
    assert append(open_log(files, config), idempotent(20)) == 20


def test_an_open_transaction_survives_a_restart() -> None:
    for clean in (True, False):
        files = MemoryFiles()
        config = small_segments(300)
        log = open_log(files, config)
        append(log, batch(b"x"))
        append(log, transactional(0))
        fill(log, 5, size=100)
        if clean:
            log.close()
        again = open_log(files, config, clean=clean)
        assert again.last_stable_offset == 1
        append(again, marker(committed=False))
        assert again.aborted_transactions(0, 100) == [AbortedTxn(7, 1, 7, 8)]


def test_leader_epochs_are_found_again_in_the_batches() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for epoch in (1, 1, 3, 6):
        append(log, batch(b"x"), leader_epoch=epoch)
    again = open_log(files, clean=False)
    assert again.leader_epochs.entries() == (EpochStart(1, 0), EpochStart(3, 2), EpochStart(6, 3))


def test_epochs_of_a_cut_tail_are_forgotten() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append(log, batch(b"x"), leader_epoch=1)
    append(log, batch(b"y"), leader_epoch=2)
    log.checkpoint()
    data = files.read(FIRST_LOG)
    files.open(FIRST_LOG).truncate(len(data) - 1)
    assert open_log(files, clean=False).leader_epochs.entries() == (EpochStart(1, 0),)


def test_the_log_start_comes_from_its_checkpoint() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 5)
    log.close()
    assert offsets(open_log(files, log_start_offset=3)) == [3, 4]


def test_a_checkpointed_start_past_the_end_of_the_log_is_ignored() -> None:
    files = MemoryFiles()
    fill(open_log(files), 5)
    log = open_log(files, clean=False, log_start_offset=9)
    assert (log.log_start_offset, offsets(log)) == (0, [0, 1, 2, 3, 4])


def test_files_on_their_way_out_are_removed() -> None:
    files = MemoryFiles()
    log = open_log(files)
    fill(log, 3)
    log.close()
    before = content(files)
    for name in (f"{0:020d}.log.deleted", f"{5:020d}.index.deleted", f"{0:020d}.log.cleaned", "x.tmp"):
        files.write_atomically(f"{DIRECTORY}/{name}", b"junk")
    files.write_atomically(f"{DIRECTORY}/{77:020d}.index", b"orphan")
    again = open_log(files)
    assert offsets(again) == [0, 1, 2]
    assert content(files) == before


def compacted_swap(files: MemoryFiles, config: TopicConfig) -> None:
    """Replace the first two segments by a `.swap` that holds offsets 0 and 3 of them, as a cleaner would."""
    log = open_log(files, config)
    fill(log, 9)
    log.close()
    first, second = (files.read(f"{DIRECTORY}/{base:020d}.log") for base in (0, 2))
    half = len(first) // 2
    files.write_atomically(f"{FIRST_LOG}.swap", first[:half] + second[half:])
    files.write_atomically(f"{FIRST_INDEX}.swap", b"")
    files.write_atomically(f"{FIRST_TIME_INDEX}.swap", b"")


def test_a_swap_that_was_complete_replaces_the_segments_it_was_made_of() -> None:
    files = MemoryFiles()
    config = small_segments(1000)
    compacted_swap(files, config)
    log = open_log(files, config, clean=False)
    assert offsets(log) == [0, 3, *range(4, 9)]
    assert not segment_names(files, ".swap")


def test_a_swap_whose_cleaning_had_not_ended_is_dropped() -> None:
    files = MemoryFiles()
    config = small_segments(1000)
    compacted_swap(files, config)
    files.write_atomically(f"{FIRST_LOG}.cleaned", b"")
    log = open_log(files, config, clean=False)
    assert offsets(log) == list(range(9))
    assert not segment_names(files, ".swap")


def test_messages_of_an_older_format_are_kept() -> None:
    """Kafka 0.10 wrote offset, size, CRC-32, magic 1, attributes, timestamp, key and value."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    data = b""
    for offset in range(3):
        body = pack(">bbqii", 1, 0, NOW_MS + offset, -1, 5) + b"value"
        data += pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body
    files.write_atomically(FIRST_LOG, data + b"torn")
    log = open_log(files, clean=False)
    assert log.log_end_offset == 3
    assert files.read(FIRST_LOG) == data
    found = log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None
    assert found.offset == 1


def test_a_torn_topic_id_does_not_keep_the_log_from_opening() -> None:
    files = MemoryFiles()
    fill(open_log(files), 1)
    files.write_atomically(f"{DIRECTORY}/partition.metadata", b"version")
    assert open_log(files, clean=False).topic_id is None


class Crash:
    """Appends with numbered values; knows what was synced."""

    def __init__(self, config: TopicConfig) -> None:
        self.files = MemoryFiles()
        self.config = config
        self.log = open_log(self.files, config)
        self.written = 0
        self.synced = 0
        self.recovery_point = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            append(self.log, idempotent(self.written))
            self.written += 1

    def sync(self) -> None:
        self.log.sync()
        self.synced = self.written

    def checkpoint(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.log.checkpoint()

    def power_loss(self, torn_bytes: int) -> None:
        self.files.power_loss(torn_bytes)
        self.reopen()

    def kill(self) -> None:
        written = self.written
        self.reopen()
        assert self.written == written

    def reopen(self) -> None:
        self.log = open_log(self.files, self.config, clean=False, recovery_point=self.recovery_point)
        end = self.log.log_end_offset
        assert self.synced <= end <= self.written
        self.written = end
        assert [record.value for record in records(self.log)] == [b"%d" % number for number in range(end)]
        for number in range(max(0, end - 5), end):
            assert self.log.append_as_leader(idempotent(number), 0, NOW_MS).base_offset == number


@settings(max_examples=examples(100), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 12)),
            st.just(("sync", 0)),
            st.just(("checkpoint", 0)),
            st.just(("kill", 0)),
            st.tuples(st.just("power_loss"), st.integers(0, 500)),
        ),
        max_size=25,
    )
)
def test_nothing_synced_is_lost_and_nothing_is_stored_twice(steps: list[tuple[str, int]]) -> None:
    crash = Crash(small_segments(700))
    for step, amount in steps:
        if step in ("append", "power_loss"):
            getattr(crash, step)(amount)
        else:
            getattr(crash, step)()
    crash.power_loss(0)


def test_reading_what_was_broken_after_the_start_is_an_error_not_bad_data() -> None:
    files = MemoryFiles()
    log = open_log(files, small_segments(100_000))
    fill(log, 40)
    log.close()
    again = open_log(files, small_segments(100_000))
    data = files.read(FIRST_LOG)
    files.open(FIRST_LOG).truncate(0)
    files.open(FIRST_LOG).append([bytes(len(data))])
    with pytest.raises(ApiError):
        again.read(0, 1000, again.log_end_offset)


def test_a_segment_with_a_batch_larger_than_a_block_is_checked() -> None:
    files = MemoryFiles()
    config = small_segments(1 << 23)
    log = open_log(files, config)
    for size in (10, 3 << 20, 10, 1 << 20, 10):
        append(log, sized_batch(size))
    assert offsets(open_log(files, config, clean=False)) == list(range(5))
