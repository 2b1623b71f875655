"""Only a disk's own failure takes a log or a directory offline: what is refused for now is done later."""

import errno
import logging
import os
from collections.abc import Callable

import pytest

from moldau.core.clock import ManualClock
from moldau.core.file_errors import SyncError
from moldau.core.files import File
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import DISK_BYTES, MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.ballast import BALLAST_BYTES_MAX, BALLAST_FILE
from moldau.log.manager import LogManager
from moldau.protocol.errors import ApiError, ErrorCode
from tests.log.helpers import NOW_MS, fill, offsets, open_log, small_segments

ALL = 1 << 30
PASSING = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM]
FULL = [errno.ENOSPC, errno.EDQUOT]
PARTITION = TopicPartition("events", 0)
VITAL = TopicPartition("__consumer_offsets", 0)
BALLAST = f"/data/{BALLAST_FILE}"


class RefusingFiles(MemoryFiles):
    """Memory in which, while `error` is set, nothing new can be opened, written or synced."""

    def __init__(self) -> None:
        super().__init__()
        self.error: int | None = None
        self.sync_error: int | None = None

    def _refuse(self, path: str) -> None:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error), path)

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:
        if self.error not in FULL:
            self._refuse(path)
        return super().open(path, create=create, ahead=ahead)

    def check_append(self, path: str) -> None:
        if self.error in FULL:
            self._refuse(path)
        super().check_append(path)

    def check_sync(self, path: str) -> None:
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error), path)
        super().check_sync(path)

    def sync_directory(self, directory: str) -> None:
        if self.error not in FULL:
            self._refuse(directory)
        super().sync_directory(directory)


def refused(action: Callable[[], object]) -> bool:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("error", PASSING)
def test_a_roll_that_is_refused_is_done_later(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 2)
    files.error = error
    assert refused(lambda: fill(log, 3))
    assert refused(lambda: log.roll_if_due(NOW_MS + 10**12))
    assert log.failure is None
    files.error = None
    fill(log, 3)
    assert offsets(log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_read_of_an_old_segment_that_is_refused_is_done_later(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 6)
    log.segments.release_sealed()
    files.error = error
    assert refused(lambda: log.read(0, ALL, 6))
    assert log.failure is None
    files.error = None
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
def test_a_sync_whose_files_cannot_be_opened_is_done_later_in_full(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 4)
    log.segments.release_sealed()
    files.error = error
    assert refused(log.sync)
    assert (log.failure, log.recovery_point) == (None, 0)
    files.error = None
    assert log.sync() == 4
    files.power_loss()
    assert offsets(open_log(files, clean=False)) == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_a_sync_that_failed_is_the_end_whatever_its_error(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files)
    fill(log, 1)
    files.sync_error = error
    assert refused(log.sync)
    assert isinstance(log.failure, SyncError)
    files.sync_error = None
    assert refused(log.sync)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.ENOENT])
def test_a_disk_that_fails_takes_the_log_offline(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files, small_segments(1000))
    fill(log, 6)
    log.segments.release_sealed()
    files.error = error
    assert refused(lambda: log.read(0, ALL, 6))
    assert log.failure is not None


@pytest.mark.parametrize("error", PASSING)
def test_indexes_that_could_not_be_rebuilt_are_rebuilt_by_the_next_reader(error: int) -> None:
    files = RefusingFiles()
    log = open_log(files, small_segments(100_000))
    fill(log, 30)
    log.close()
    for suffix in (".index", ".timeindex"):
        path = f"{log.directory}/{0:020d}{suffix}"
        files.remove(path)
        files.open(path, create=True).append([b"x"])
    again = open_log(files, small_segments(100_000))
    fill(again, 1)
    again.segments.active._checked = False
    before = again.segments.active.max_timestamp
    again.segments.active._max_timestamp = -2
    files.open(f"{log.directory}/{0:020d}.timeindex").append([b"x"])
    files.error = error
    assert refused(lambda: again.offset_for_timestamp(NOW_MS))
    files.error = None
    assert again.segments.active.max_timestamp == before
    assert again.failure is None


# Directories


def started(files: MemoryFiles, clock: ManualClock | None = None) -> LogManager:
    manager = LogManager(
        files,
        clock or ManualClock(NOW_MS),
        ["/data"],
        config_of=lambda _: TopicConfig(segment_bytes=1000),
        new_uuid=lambda: os.urandom(16),
        vital_topics={VITAL.topic},
    )
    manager.lock()
    manager.claim(1, "a-cluster")
    manager.load()
    return manager


@pytest.mark.parametrize("error", PASSING)
def test_checkpoints_that_are_refused_are_written_at_the_next_interval(
    error: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = RefusingFiles()
    manager = started(files)
    fill(manager.get_or_create(PARTITION), 1)
    marks = {PARTITION: 1}
    files.error = error
    for _ in range(3):
        with_error(files, error, lambda: manager.checkpoint_high_watermarks(marks))
    assert manager.directories[0].failure is None
    assert len([each for each in caplog.records if "refused for now" in each.message]) <= 1
    files.error = None
    manager.checkpoint_high_watermarks(marks)
    assert files.read("/data/replication-offset-checkpoint") == b"0\n1\nevents 0 1\n"


def with_error(files: RefusingFiles, error: int, action: Callable[[], object]) -> None:
    """Do it while whole files cannot be written either."""
    if error not in FULL:
        files.fail_next_append(error)
    action()


@pytest.mark.parametrize("error", PASSING)
def test_a_partition_that_cannot_be_made_now_can_be_made_later(error: int) -> None:
    files = RefusingFiles()
    manager = started(files)
    files.error = error
    assert refused(lambda: manager.get_or_create(PARTITION, bytes(range(16))))
    assert not files.is_directory("/data/events-0")
    assert manager.directories[0].failure is None
    files.error = None
    manager.look_for_room()
    fill(manager.get_or_create(PARTITION), 1)


def test_a_full_disk_gives_up_its_ballast_and_takes_appends_again_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="moldau.log")
    files = MemoryFiles()
    manager = started(files)
    assert files.exists(BALLAST)
    log, vital = manager.get_or_create(PARTITION), manager.get_or_create(VITAL)
    fill(log, 1)
    fill(vital, 1)
    files.free_bytes = 0
    files.fail_next_append(errno.ENOSPC)
    assert refused(lambda: fill(log, 1))
    files.free_bytes = BALLAST_BYTES_MAX
    assert not files.exists(BALLAST)
    for _ in range(3):
        manager.look_for_room()
        assert refused(lambda: fill(log, 1)), "the room that was made is not for producers"
        fill(vital, 1)
        assert offsets(log) == [0]
    files.free_bytes = BALLAST_BYTES_MAX // 4
    manager.look_for_room()
    assert refused(lambda: fill(vital, 1)), "half of it is not for coordinators either"
    files.free_bytes = DISK_BYTES
    manager.look_for_room()
    assert files.exists(BALLAST)
    fill(log, 1)
    fill(vital, 1)
    told = [each.message for each in caplog.records if each.name == "moldau.log.ballast"]
    assert told == [
        "/data is full: appends are refused until there is room",
        "/data has room again: appends are accepted",
    ]


def test_a_disk_that_somebody_else_has_filled_is_noticed_without_an_append() -> None:
    files = MemoryFiles()
    manager = started(files)
    files.free_bytes = 1000
    manager.look_for_room()
    assert manager.is_full
    assert not files.exists(BALLAST)


def test_a_broker_starts_on_a_disk_that_is_full() -> None:
    files = MemoryFiles()
    first = started(files)
    fill(first.get_or_create(PARTITION), 3)
    assert first.close()
    files.free_bytes = 0
    second = started(files)
    assert second.is_full
    assert not files.exists(BALLAST)
    log = second.get_or_create(PARTITION)
    assert offsets(log) == [0, 1, 2]
    assert refused(lambda: fill(log, 1))


def test_a_disk_that_is_full_is_rid_of_deleted_files_without_delay() -> None:
    files = MemoryFiles()
    manager = started(files)
    log = manager.get_or_create(PARTITION)
    other = manager.get_or_create(TopicPartition("other", 0))
    fill(log, 5)
    fill(other, 5)
    other.advance_log_start(5)
    manager.delete_expired(lambda _: 5)
    manager.delete(PARTITION)
    manager.remove_doomed()
    assert len([name for name in files.list("/data") if name.endswith("-delete")]) == 1
    files.free_bytes = 0
    manager.look_for_room()
    manager.remove_doomed()
    assert not [name for name in files.list("/data") if name.endswith("-delete")]
    assert not [name for name in files.list("/data/other-0") if name.endswith(".deleted")]


def test_a_directory_is_not_marked_clean_if_a_log_could_not_be_closed() -> None:
    files = RefusingFiles()
    manager = started(files)
    fill(manager.get_or_create(PARTITION), 3)
    files.error = errno.EMFILE
    assert not manager.close()
    files.error = None
    assert not files.exists("/data/.kafka_cleanshutdown")


def test_a_start_that_is_refused_fails_and_gives_no_directory_up() -> None:
    files = RefusingFiles()
    started(files).close()
    files.error = errno.EMFILE
    with pytest.raises(OSError, match="Too many"):
        started(files)
    files.error = None
    assert started(files).directories[0].failure is None
