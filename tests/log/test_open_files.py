"""More partitions than descriptors: files are open within a bound, and nobody notices."""

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from moldau.core.clock import ManualClock
from moldau.core.descriptors import Descriptors
from moldau.core.files import File
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.real_files import BUSY_BYTES, RealFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.log import Log
from moldau.log.open_files import OpenFiles
from tests.log.helpers import NOW_MS, append, batch, fill, offsets

MANY = 1 << 20


def open_logs(count: int, open_files: OpenFiles, files: MemoryFiles | None = None) -> list[Log]:
    disk = files or MemoryFiles()
    return [
        Log.open(
            disk,
            ManualClock(NOW_MS),
            f"/data/t-{number}",
            TopicPartition("t", number),
            TopicConfig(),
            open_files=open_files,
        )
        for number in range(count)
    ]


def count_open(logs: list[Log]) -> int:
    return sum(segment.is_open for log in logs for segment in log.segments)


def test_idle_files_are_closed_and_opened_again_by_the_next_append() -> None:
    open_files = OpenFiles(Descriptors(MANY, MANY, 8))
    logs = open_logs(30, open_files)
    assert count_open(logs) == len(open_files) <= 8
    for _ in range(3):
        for log in logs:
            fill(log, 2)
            assert count_open(logs) == len(open_files) <= 8
    assert all(offsets(log) == [0, 1, 2, 3, 4, 5] for log in logs)


def test_who_is_appended_to_stays_open() -> None:
    open_files = OpenFiles(Descriptors(MANY, MANY, 8))
    busy, *others = open_logs(20, open_files)
    fill(busy, 1)
    for log in others:
        fill(busy, 1)
        before = busy.segments.active.open_file
        fill(log, 1)
        assert busy.segments.active.open_file is before is not None


def test_a_deleted_log_keeps_no_file_open_though_somebody_holds_it(tmp_path: Path) -> None:
    """A removed file keeps its room on the disk until it is closed, and what refers to a log may live for long."""
    open_files = OpenFiles(Descriptors(MANY, MANY, MANY))
    config = TopicConfig(segment_bytes=1000)
    partition = TopicPartition("t", 0)
    log = Log.open(RealFiles(), ManualClock(NOW_MS), f"{tmp_path}/t-0", partition, config, open_files=open_files)
    fill(log, 20)
    assert offsets(log) == list(range(20))
    region = log.read(0, 1_000_000, log.log_end_offset)
    assert region is not None
    before = region.read()
    assert len(open_descriptors(tmp_path)) > 1
    log.retire()
    assert open_descriptors(tmp_path) == [f"{tmp_path}/t-0/{0:020d}.log"], "that of the reader"
    assert region.read() == before, "who has begun to read goes on"
    del region
    assert open_descriptors(tmp_path) == []
    assert len(open_files) == 0


def open_descriptors(directory: Path) -> list[str]:
    """Files below a directory that this process has open."""
    links = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            links.append(os.readlink(each))
    return sorted(link for link in links if link.startswith(f"{directory}/"))


def test_files_that_grew_ahead_are_left_with_what_was_appended(tmp_path: Path) -> None:
    """A file that is opened again ends where its segment does."""
    files = RealFiles(lambda _, __: None)
    open_files = OpenFiles(Descriptors(MANY, MANY, MANY))
    partition = TopicPartition("t", 0)
    log = Log.open(files, ManualClock(NOW_MS), f"{tmp_path}/t-0", partition, TopicConfig(), open_files=open_files)
    value = os.urandom(10_000)
    for _ in range(BUSY_BYTES // 10_000 + 20):
        append(log, batch(value))
    active = log.segments.active
    assert os.stat(active.path).st_size > active.size, "it has grown ahead"
    assert open_files.shed()
    assert not active.is_open
    assert os.stat(active.path).st_size == active.size
    end = log.log_end_offset
    append(log, batch(value))
    assert offsets(log) == list(range(end + 1))


def test_a_high_descriptor_closes_files_below_the_bound(tmp_path: Path) -> None:
    """Connections may have taken the rest."""
    files, open_files = RealFiles(), OpenFiles(Descriptors(0, 0, MANY))
    for number in range(10):
        partition = TopicPartition("t", number)
        path = f"{tmp_path}/{partition}"
        fill(Log.open(files, ManualClock(NOW_MS), path, partition, TopicConfig(), open_files=open_files), 1)
        assert len(open_files) <= 2


class ShortFiles(MemoryFiles):
    """Memory in which a file can be opened only while few logs have theirs open."""

    def __init__(self, logs: list[Log], open_max: int) -> None:
        super().__init__()
        self.logs = logs
        self.open_max = open_max

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        if count_open(self.logs) >= self.open_max:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create, ahead=ahead)


def test_out_of_descriptors_others_are_closed_and_nothing_is_refused() -> None:
    open_files = OpenFiles(Descriptors(MANY, MANY, MANY))
    logs: list[Log] = []
    files = ShortFiles(logs, MANY)
    logs += open_logs(10, open_files, files)
    for log in logs:
        log.segments.active.park()
    files.open_max = 4
    for _ in range(2):
        for log in logs:
            fill(log, 1)
    assert all(offsets(log) == [0, 1] for log in logs)


def test_only_the_thread_that_appends_closes_files() -> None:
    open_files = OpenFiles(Descriptors(MANY, MANY, MANY))
    logs = open_logs(4, open_files)
    open_files.belong_to_this_thread()
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(open_files.shed()))
    thread.start()
    thread.join()
    assert found == [False]
    assert count_open(logs) == 4


def test_a_segment_that_is_gone_is_not_kept_open() -> None:
    open_files = OpenFiles(Descriptors(MANY, MANY, MANY))
    logs = open_logs(3, open_files)
    del logs[1]
    assert len(open_files) == 2


def test_a_sync_of_a_closed_file_opens_it_for_itself() -> None:
    """The loop may append to the segment at the same moment, through a file of its own."""
    [log] = open_logs(1, OpenFiles(Descriptors(MANY, MANY, MANY)))
    fill(log, 3)
    log.segments.active.park()
    assert log.sync() == 3
    assert not log.segments.active.is_open
