"""One contract, two file systems: the machine's and the one in memory. Then the faults that only memory has."""

import contextlib
import errno
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.core import real_files
from moldau.core.files import FILLER, FileRegion, Files
from moldau.core.memory_files import MemoryFiles
from moldau.core.real_files import (
    BUSY_BYTES,
    CHUNKS_PER_WRITE_MAX,
    FIRST_STRETCH_BYTES,
    GROWN_SIZE_MAX,
    RESERVED_BYTES,
    REST_BYTES,
    SHORT_BYTES,
    STRETCH_BYTES,
    SURE_BYTES,
    RealFiles,
)
from moldau.core.reserving import reserve


@pytest.fixture(params=["real", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return RealFiles() if request.param == "real" else MemoryFiles()


@pytest.fixture
def directory(files: Files, tmp_path: Path) -> str:
    path = f"{tmp_path}/a/b"
    files.make_directory(path)
    return path


def test_chunks_are_appended_in_order_and_where_they_start_is_returned(files: Files, directory: str) -> None:
    file = files.open(f"{directory}/f", create=True)
    assert file.append([b"one", memoryview(b"two")]) == 0
    assert file.append([bytearray(b"three")]) == 6
    assert file.size() == 11
    assert file.read_at(0, 100) == b"onetwothree"
    assert file.read_at(3, 3) == b"two"
    assert file.read_at(11, 5) == b""


def test_more_chunks_than_one_vectored_write_takes_are_written(files: Files, directory: str) -> None:
    file = files.open(f"{directory}/f", create=True)
    chunks = [bytes([number % 256]) for number in range(CHUNKS_PER_WRITE_MAX + 10)]
    file.append(chunks)
    assert file.read_at(0, 5000) == b"".join(chunks)


def test_a_file_that_is_opened_again_goes_on_at_its_end(files: Files, directory: str) -> None:
    files.open(f"{directory}/f", create=True).append([b"abc"])
    file = files.open(f"{directory}/f")
    assert file.size() == 3
    file.append([b"def"])
    assert files.read(f"{directory}/f") == b"abcdef"


def test_an_append_after_a_truncation_starts_at_the_new_end(files: Files, directory: str) -> None:
    file = files.open(f"{directory}/f", create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    assert file.size() == 2
    assert file.append([b"X"]) == 2
    file.sync()
    assert files.read(f"{directory}/f") == b"abX"


def test_a_missing_file_is_not_made_unless_asked_for(files: Files, directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{directory}/f")
    with pytest.raises(FileNotFoundError):
        files.read(f"{directory}/f")
    assert not files.exists(f"{directory}/f")


def test_a_region_reads_its_bytes_after_the_file_was_removed(files: Files, directory: str) -> None:
    file = files.open(f"{directory}/f", create=True)
    file.append([b"0123456789"])
    region = FileRegion(file, 2, 3)
    files.remove(f"{directory}/f")
    assert len(region) == 3
    assert region.read() == b"234"


def test_an_atomic_write_replaces_the_content(files: Files, directory: str) -> None:
    files.write_atomically(f"{directory}/f", b"old")
    files.write_atomically(f"{directory}/f", b"new")
    assert files.read(f"{directory}/f") == b"new"
    assert files.list(directory) == ["f"]


def test_names_are_listed_sorted_with_directories(files: Files, directory: str) -> None:
    files.open(f"{directory}/z", create=True)
    files.open(f"{directory}/a", create=True)
    files.make_directory(f"{directory}/m")
    assert files.list(directory) == ["a", "m", "z"]
    assert files.is_directory(f"{directory}/m")
    assert not files.is_directory(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        files.list(f"{directory}/none")


def test_a_rename_replaces_what_was_there(files: Files, directory: str) -> None:
    files.open(f"{directory}/a", create=True).append([b"a"])
    files.open(f"{directory}/b", create=True).append([b"b"])
    files.rename(f"{directory}/a", f"{directory}/b")
    assert files.list(directory) == ["b"]
    assert files.read(f"{directory}/b") == b"a"
    with pytest.raises(FileNotFoundError):
        files.rename(f"{directory}/a", f"{directory}/c")


def test_a_directory_is_renamed_with_what_is_in_it(files: Files, directory: str) -> None:
    files.make_directory(f"{directory}/t-0")
    files.open(f"{directory}/t-0/f", create=True).append([b"x"])
    files.rename(f"{directory}/t-0", f"{directory}/t-0.x-delete")
    assert files.read(f"{directory}/t-0.x-delete/f") == b"x"
    assert not files.exists(f"{directory}/t-0")


def test_removing_what_is_gone_is_no_error(files: Files, directory: str) -> None:
    files.make_directory(f"{directory}/t")
    files.open(f"{directory}/t/f", create=True)
    files.remove_tree(f"{directory}/t")
    files.remove_tree(f"{directory}/t")
    files.remove(f"{directory}/f")
    assert files.list(directory) == []


def test_a_second_lock_is_refused_until_the_first_is_released(files: Files, directory: str) -> None:
    first = files.lock(f"{directory}/.lock")
    assert first is not None
    assert files.lock(f"{directory}/.lock") is None
    first.release()
    second = files.lock(f"{directory}/.lock")
    assert second is not None
    second.release()


# Only real files


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        RealFiles().lock(str(tmp_path / "lock"))
    assert not (tmp_path / "elsewhere").exists()


def test_a_private_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    RealFiles().make_directory(str(tmp_path / "a" / "b"), private=True)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert RealFiles().is_ours(str(tmp_path / "a" / "b"))


def test_what_a_link_leads_to_is_not_removed_with_it(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("x")
    (tmp_path / "near").symlink_to(tmp_path / "far")
    RealFiles().remove_tree(str(tmp_path / "near"))
    assert not (tmp_path / "near").is_symlink()
    assert (tmp_path / "far" / "file").exists()


def test_the_descriptor_is_closed_with_the_last_reference(tmp_path: Path) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    region = FileRegion(file, 0, 0)
    del file
    gc.collect()
    assert is_open(tmp_path / "f")
    del region
    gc.collect()
    assert not is_open(tmp_path / "f")


def is_open(path: Path) -> bool:
    """Whether this process has the file open. By name: another thread may take up a number at any time."""
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{descriptor}") == str(path):
                return True
    return False


def test_a_write_that_the_disk_takes_in_part_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: some bytes are taken, the next write says ENOSPC."""
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    file.append([b"kept"])
    write = os.pwritev

    def half(descriptor: int, chunks: list[bytes], position: int) -> int:
        return write(descriptor, [b"".join(chunks)[:3]], position)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwritev", half)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        file.append([b"lo", b"st"])
    monkeypatch.undo()
    assert file.size() == 4
    assert Path(f"{tmp_path}/f").read_bytes() == b"kept"
    file.append([b"more"])
    assert Path(f"{tmp_path}/f").read_bytes() == b"keptmore"


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: write(fd, [b"".join(chunks)[:3]], at))
    assert file.append([b"abc", b"def"]) == 0
    assert Path(f"{tmp_path}/f").read_bytes() == b"abcdef"


def test_a_sync_in_a_thread_goes_along_with_appends(tmp_path: Path) -> None:
    file = RealFiles().open(f"{tmp_path}/f", create=True)

    def sync_often() -> None:
        for _ in range(20):
            file.sync()

    thread = threading.Thread(target=sync_often)
    thread.start()
    for _ in range(200):
        file.append([b"0123456789"])
    thread.join()
    assert file.size() == 2000


# Growing ahead

SMALL = os.urandom(STRETCH_BYTES // 16)
BUSY = BUSY_BYTES // len(SMALL)
"""So many of them."""
VERY_BUSY = SHORT_BYTES // len(SMALL)


class Growing:
    """A file that may grow ahead, and a clock that is turned by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[Callable[[], None]] = []
        self.written = b""
        self.file = RealFiles(lambda _, call: self.calls.append(call)).open(str(path), create=True, ahead=True)

    def append(self, count: int) -> None:
        for _ in range(count):
            assert self.file.append([SMALL[:7], SMALL[7:]]) == len(self.written)
            self.written += SMALL

    def look(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    @property
    def on_disk(self) -> int:
        return self.path.stat().st_blocks * 512

    @property
    def filler(self) -> int:
        """How much of it there is; everything else is as it was written."""
        content = self.path.read_bytes()
        assert content[: len(self.written)] == self.written
        assert set(content[len(self.written) :]) <= {FILLER}
        assert self.file.size() == len(self.written)
        return len(content) - len(self.written)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "f")


def test_a_file_of_many_small_appends_grows_ahead_of_them(growing: Growing) -> None:
    growing.append(BUSY)
    assert growing.filler == 0
    growing.append(1)
    assert growing.filler == FIRST_STRETCH_BYTES - len(SMALL)
    growing.append(VERY_BUSY - BUSY)
    assert growing.filler == STRETCH_BYTES - len(SMALL)
    growing.append(14)
    assert growing.filler == len(SMALL)
    growing.append(2)
    assert growing.filler == STRETCH_BYTES - len(SMALL)
    growing.file.trim()
    assert growing.filler == 0
    growing.append(1)
    assert growing.filler == 0


def test_filler_is_a_small_part_of_what_is_appended_between_two_rests(growing: Growing) -> None:
    for _ in range(3 * BUSY):
        growing.append(1)
        assert growing.filler <= len(growing.written) // 4


def test_it_is_trimmed_when_it_has_come_to_rest(growing: Growing) -> None:
    growing.append(BUSY + 3)
    growing.look()
    growing.append(REST_BYTES // len(SMALL))
    growing.look()
    assert growing.filler > 0
    growing.append(REST_BYTES // len(SMALL) - 1)
    growing.look()
    assert growing.filler == 0
    assert growing.calls == []
    growing.append(BUSY + 1)
    assert growing.filler > 0
    assert len(growing.calls) == 1


def test_room_on_the_disk_is_reserved_and_given_back(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    given: list[bool] = []

    def noted(descriptor: int, position: int, size: int) -> bool:
        asked.append((position, size))
        given.append(reserve(descriptor, position, size))
        return given[-1]

    monkeypatch.setattr(real_files, "reserve", noted)
    sure = (BUSY_BYTES + SURE_BYTES) // len(SMALL)
    growing.append(sure)
    assert growing.filler == 0
    assert asked == [], "a stretch is enough for what is a little busy"
    growing.append(RESERVED_BYTES // len(SMALL))
    assert asked == [(BUSY_BYTES + SURE_BYTES, RESERVED_BYTES)]
    growing.append(1)
    assert asked[1:] == [(BUSY_BYTES + SURE_BYTES + RESERVED_BYTES, RESERVED_BYTES)]
    assert growing.on_disk >= BUSY_BYTES + 2 * RESERVED_BYTES or not all(given)  # not every file system can
    growing.file.trim()
    assert growing.filler == 0
    assert growing.on_disk < len(growing.written) + STRETCH_BYTES
    rested_at = len(growing.written)
    growing.append(sure + STRETCH_BYTES // len(SMALL))
    assert [size for _, size in asked[2:]] == [RESERVED_BYTES]
    assert 0 < asked[2][0] - rested_at - BUSY_BYTES - SURE_BYTES <= STRETCH_BYTES
    growing.file.truncate(100)
    assert growing.on_disk < STRETCH_BYTES


def test_a_file_grows_where_no_room_can_be_reserved(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_files, "reserve", lambda *_: False)
    growing.append(VERY_BUSY + 1)
    assert growing.filler == STRETCH_BYTES - len(SMALL)
    growing.append(100)
    growing.file.trim()
    assert growing.filler == 0


def test_no_room_is_reserved_without_a_file() -> None:
    assert not reserve(-1, 0, 4096)


def test_long_appends_are_not_written_twice(growing: Growing) -> None:
    growing.append(BUSY)
    growing.file.append([SMALL * 16])
    growing.written += SMALL * 16
    assert growing.filler == 0


def test_a_file_that_has_grown_ahead_can_be_cut(growing: Growing) -> None:
    growing.append(BUSY + 4)
    growing.file.truncate(100)
    growing.written = growing.written[:100]
    assert growing.filler == 0
    growing.append(3)
    assert growing.filler == 0


def test_a_disk_without_room_for_filler_takes_what_is_written(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", full)
    growing.append(BUSY + 4)
    assert growing.filler == 0
    assert growing.calls == []


def test_a_failed_append_leaves_no_filler(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    growing.append(BUSY + 4)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="no space"):
        growing.file.append([SMALL])
    monkeypatch.undo()
    assert growing.filler == 0
    growing.append(2)
    assert growing.filler == FIRST_STRETCH_BYTES - 6 * len(SMALL)


def test_no_file_grows_beyond_what_kafka_opens(growing: Growing) -> None:
    os.truncate(growing.path, GROWN_SIZE_MAX - BUSY_BYTES - STRETCH_BYTES)
    file = RealFiles(lambda *_: None).open(str(growing.path), ahead=True)
    for _ in range(BUSY + 9):
        file.append([SMALL])
        assert growing.path.stat().st_size <= GROWN_SIZE_MAX
    assert growing.path.stat().st_size > file.size()


# Only memory: faults


@pytest.fixture
def memory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    return files


def test_power_loss_takes_bytes_that_were_not_synced(memory: MemoryFiles) -> None:
    file = memory.open("/d/f", create=True)
    file.append([b"safe"])
    file.sync()
    memory.sync_directory("/d")
    file.append([b"lost"])
    memory.power_loss()
    assert memory.read("/d/f") == b"safe"


def test_power_loss_may_leave_a_torn_tail(memory: MemoryFiles) -> None:
    file = memory.open("/d/f", create=True)
    memory.sync_directory("/d")
    file.append([b"0123456789"])
    memory.power_loss(torn_bytes=4)
    assert memory.read("/d/f") == b"0123"


def test_power_loss_takes_names_whose_directory_was_not_synced(memory: MemoryFiles) -> None:
    file = memory.open("/d/f", create=True)
    file.append([b"x"])
    file.sync()
    memory.power_loss()
    assert not memory.exists("/d/f")


def test_power_loss_brings_back_a_name_whose_removal_was_not_synced(memory: MemoryFiles) -> None:
    memory.write_atomically("/d/f", b"x")
    memory.remove("/d/f")
    memory.power_loss()
    assert memory.read("/d/f") == b"x"


def test_bytes_written_over_a_truncated_end_are_lost_with_the_power(memory: MemoryFiles) -> None:
    memory.write_atomically("/d/f", b"abcdef")
    file = memory.open("/d/f")
    file.truncate(2)
    file.append([b"XY"])
    memory.power_loss()
    assert memory.read("/d/f") == b"ab"


def test_a_handle_from_before_the_power_loss_writes_nowhere(memory: MemoryFiles) -> None:
    memory.write_atomically("/d/f", b"x")
    old = memory.open("/d/f")
    lock = memory.lock("/d/.lock")
    memory.power_loss()
    old.append([b"ghost"])
    assert memory.read("/d/f") == b"x"
    assert lock is not None
    assert memory.lock("/d/.lock") is not None


@pytest.mark.parametrize(
    ("arm", "act"),
    [
        (MemoryFiles.fail_next_append, lambda files: files.open("/d/f", create=True).append([b"x"])),
        (MemoryFiles.fail_next_sync, lambda files: files.open("/d/f", create=True).sync()),
    ],
)
def test_a_fault_strikes_once(
    memory: MemoryFiles, arm: Callable[[MemoryFiles], None], act: Callable[[MemoryFiles], None]
) -> None:
    arm(memory)
    with pytest.raises(OSError, match=r"\[Errno"):
        act(memory)
    assert memory.read("/d/f") == b""
    act(memory)
