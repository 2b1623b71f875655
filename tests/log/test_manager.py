"""The logs of a broker: start, stop, create, delete, fail."""

import errno
import itertools
from collections.abc import Sequence

import pytest

from moldau.core.clock import ManualClock
from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.core.topic_config import TopicConfig
from moldau.log.data_directory import DirectoryError, partition_of
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.verification import NOT_VERIFIED
from moldau.protocol.errors import ApiError, ErrorCode
from tests.log.helpers import NOW_MS, batch, fill, idempotent, offsets, small_segments, transactional

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPIC_ID = bytes(range(16))
CLUSTER = "a-cluster"


class Disks:
    """Memory, and managers over it one after the other."""

    def __init__(self, *directories: str, config: TopicConfig | None = None) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock(NOW_MS)
        self.directories = directories or ("/one",)
        self.config = config or TopicConfig()
        self.offline: list[tuple[str, list[TopicPartition]]] = []
        self._ids = itertools.count(1)

    def manager(self) -> LogManager:
        return LogManager(
            self.files,
            self.clock,
            self.directories,
            config_of=lambda _: self.config,
            new_uuid=lambda: next(self._ids).to_bytes(16, "big"),
            on_offline=self._went_offline,
        )

    def started(self) -> LogManager:
        manager = self.manager()
        manager.lock()
        manager.claim(1, CLUSTER)
        manager.load()
        return manager

    def _went_offline(self, path: str, logs: Sequence[Log]) -> None:
        self.offline.append((path, [log.topic_partition for log in logs]))

    def read(self, path: str) -> str:
        return self.files.read(path).decode()


@pytest.fixture
def disks() -> Disks:
    return Disks()


def test_a_new_partition_has_a_directory_with_its_topic_id(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0, TOPIC_ID)
    assert manager.get_or_create(A0) is log is manager.get(A0)
    assert (log.directory, log.topic_id, manager.home_of(A0)) == ("/one/a-0", TOPIC_ID, "/one")
    assert manager.get(A1) is None


def test_all_logs_are_there_after_a_clean_stop(disks: Disks) -> None:
    manager = disks.started()
    for number, partition in enumerate((A0, A1, B0), 1):
        fill(manager.get_or_create(partition, TOPIC_ID), number)
    manager.close({A0: 1})
    assert disks.files.exists("/one/.kafka_cleanshutdown")
    assert disks.read("/one/recovery-point-offset-checkpoint") == "0\n3\na 0 1\na 1 2\nb 0 3\n"
    assert disks.read("/one/replication-offset-checkpoint") == "0\n1\na 0 1\n"
    again = disks.started()
    assert not disks.files.exists("/one/.kafka_cleanshutdown")
    assert {log.topic_partition: log.log_end_offset for log in again} == {A0: 1, A1: 2, B0: 3}
    assert all(log.recovery_point == log.log_end_offset for log in again)
    assert again.directories[0].high_watermarks.read() == {A0: 1}


def test_after_a_crash_what_was_not_checkpointed_is_checked(disks: Disks) -> None:
    log = disks.started().get_or_create(A0)
    log.sync()
    fill(log, 3)
    size = disks.files.open("/one/a-0/00000000000000000000.log").size()
    disks.files.open("/one/a-0/00000000000000000000.log").truncate(size - 1)
    disks.files.power_loss(1 << 20)
    again = disks.started().get(A0)
    assert again is not None
    assert again.log_end_offset in (0, 2)


def test_a_checkpoint_says_where_recovery_starts(disks: Disks) -> None:
    disks.config = small_segments(1000)
    manager = disks.started()
    log = manager.get_or_create(A0)
    fill(log, 7, leader_epoch=3)
    manager.sync_sealed()
    manager.checkpoint({A0: 5})
    assert disks.read("/one/recovery-point-offset-checkpoint") == "0\n1\na 0 6\n"
    assert disks.read("/one/replication-offset-checkpoint") == "0\n1\na 0 5\n"
    assert disks.read("/one/a-0/leader-epoch-checkpoint") == "0\n1\n3 0\n"


def test_a_moved_log_start_survives(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0)
    fill(log, 5)
    log.advance_log_start(3)
    manager.checkpoint({})
    assert disks.read("/one/log-start-offset-checkpoint") == "0\n1\na 0 3\n"
    manager.close()
    again = disks.started().get(A0)
    assert again is not None
    assert (again.log_start_offset, offsets(again)) == (3, [3, 4])


def test_a_second_broker_is_refused(disks: Disks) -> None:
    first = disks.started()
    with pytest.raises(DirectoryError, match="/one is in use"):
        disks.manager().lock()
    first.close()
    disks.manager().lock()


def test_a_directory_belongs_to_one_broker_of_one_cluster(disks: Disks) -> None:
    disks.started().close()
    assert disks.read("/one/meta.properties") == (
        "version=0\nbroker.id=1\ncluster.id=a-cluster\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    manager = disks.manager()
    manager.lock()
    manager.claim(1, CLUSTER)
    assert manager.directories[0].directory_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    with pytest.raises(DirectoryError, match=r"broker\.id 1, not to 2"):
        manager.claim(2, CLUSTER)
    with pytest.raises(DirectoryError, match=r"cluster\.id a-cluster, not to other"):
        manager.claim(1, "other")


def test_the_properties_that_kafka_wrote_are_taken_as_they_are(disks: Disks) -> None:
    disks.files.make_directory("/one")
    kafka = b"#\n#Sun Nov 15 23:29:48 UTC 2026\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=a-cluster\n"
    disks.files.write_atomically("/one/meta.properties", kafka)
    disks.started()
    assert disks.files.read("/one/meta.properties") == kafka


def test_new_partitions_go_to_the_directory_with_the_fewest() -> None:
    disks = Disks("/one", "/two")
    manager = disks.started()
    for number in range(4):
        manager.get_or_create(TopicPartition("t", number))
    assert [manager.home_of(TopicPartition("t", number)) for number in range(4)] == ["/one", "/two", "/one", "/two"]


def test_a_partition_in_two_directories_is_refused() -> None:
    disks = Disks("/one", "/two")
    disks.started().get_or_create(A0)
    disks.files.power_loss()
    for directory in disks.directories:
        disks.files.make_directory(f"{directory}/a-0")
        disks.files.open(f"{directory}/a-0/{0:020d}.log", create=True)
    with pytest.raises(DirectoryError, match="a-0 is in /two and in /one"):
        disks.started()


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0)
    fill(log, 3)
    manager.delete(A0)
    manager.delete(A0)
    assert manager.get(A0) is None
    assert not any(segment.is_open for segment in log.segments)
    (name,) = [name for name in disks.files.list("/one") if name.startswith("a-0")]
    assert name.endswith("-delete")
    with pytest.raises(ApiError):
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
    assert manager.get_or_create(A0).log_end_offset == 0
    manager.remove_doomed()
    assert disks.files.exists(f"/one/{name}")
    disks.clock.advance(disks.config.file_delete_delay_ms)
    manager.remove_doomed()
    assert not disks.files.exists(f"/one/{name}")


def test_the_name_of_a_doomed_directory_fits_the_file_system(disks: Disks) -> None:
    manager = disks.started()
    partition = TopicPartition("t" * 249, 12)
    manager.get_or_create(partition)
    manager.delete(partition)
    assert all(len(name) <= 255 for name in disks.files.list("/one"))


def test_what_was_being_deleted_is_removed_at_the_next_start(disks: Disks) -> None:
    manager = disks.started()
    manager.get_or_create(A0)
    manager.delete(A0)
    manager.close()
    assert len(disks.started()) == 0
    assert not [name for name in disks.files.list("/one") if name.endswith("-delete")]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-0", A0),
        ("a-b.c_d-12", TopicPartition("a-b.c_d", 12)),
        ("__consumer_offsets-3", TopicPartition("__consumer_offsets", 3)),
        ("__cluster_metadata-0", None),
        ("a-0.0123456789abcdef0123456789abcdef-delete", None),
        ("a-0.0123456789abcdef0123456789abcdef-future", None),
        ("a-0-stray", None),
        ("a", None),
        ("-3", None),
        ("a-007", None),
        ("a b-1", None),
        ("a-\u0663", None),
        ("remote-log-index-cache", None),
    ],
)
def test_directories_are_told_apart_by_their_names(name: str, partition: TopicPartition | None) -> None:
    assert partition_of(name) == partition


def test_a_directory_without_a_log_is_left_alone_and_named(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    theirs = ["photos-2019/summer.tmp", "photos-2019/1.index", "x-1/old.deleted", "my.cuts-delete/a", "plain/b.swap"]
    for path in theirs:
        disks.files.make_directory(f"/one/{path.partition('/')[0]}")
        disks.files.write_atomically(f"/one/{path}", b"theirs")
    manager = disks.started()
    assert len(manager) == 0
    assert all(disks.files.exists(f"/one/{path}") for path in theirs)
    (line,) = [each.getMessage() for each in caplog.records if "left alone" in each.getMessage()]
    assert all(path.partition("/")[0] in line for path in theirs)


def test_no_log_is_made_in_a_strangers_directory() -> None:
    disks = Disks("/one", "/two")
    disks.files.make_directory("/one/a-0")
    disks.files.write_atomically("/one/a-0/letter.tmp", b"theirs")
    manager = disks.started()
    assert manager.get_or_create(A0, TOPIC_ID).directory == "/two/a-0"
    disks.files.make_directory("/two")
    disks.files.write_atomically("/two/a-1", b"a file")
    disks.files.make_directory("/one/a-1")
    disks.files.write_atomically("/one/a-1/letter.tmp", b"theirs")
    with pytest.raises(ApiError, match="in the way"):
        manager.get_or_create(A1, TOPIC_ID)
    assert disks.files.read("/one/a-0/letter.tmp") == b"theirs"
    assert not disks.offline


@pytest.mark.parametrize(
    "left", [(), (f"{0:020d}.index", f"{0:020d}.timeindex", "leader-epoch-checkpoint", f"{'0a' * 16}.not-checkpointed")]
)
def test_a_directory_whose_segment_never_came_is_used_when_its_partition_is_made(
    disks: Disks, left: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    disks.files.make_directory("/one/a-0")
    for name in left:
        disks.files.write_atomically(f"/one/a-0/{name}", b"")
    manager = disks.started()
    assert manager.get(A0) is None
    assert "left alone" not in caplog.text
    fill(manager.get_or_create(A0, TOPIC_ID), 1)
    manager.close()
    assert len(disks.started()) == 1


def test_the_data_directory_of_a_broker_is_never_removed(disks: Disks) -> None:
    path = f"/one/broker-1.{'0a' * 16}-delete"
    disks.files.make_directory(path)
    disks.files.write_atomically(f"{path}/meta.properties", b"broker.id=1\n")
    disks.started()
    assert disks.files.exists(f"{path}/meta.properties")


def test_a_log_that_is_left_alone_is_neither_used_nor_touched(disks: Disks) -> None:
    manager = disks.started()
    fill(manager.get_or_create(A0, TOPIC_ID), 3)
    before = disks.files.list("/one/a-0")
    manager.leave_alone(A0)
    assert manager.get(A0) is None
    with pytest.raises(ApiError, match="in the way"):
        manager.get_or_create(A0, TOPIC_ID)
    manager.close()
    again = disks.started()
    assert again.get(A0) is None, "nor after a restart"
    with pytest.raises(ApiError, match="in the way"):
        again.get_or_create(A0, TOPIC_ID)
    assert disks.files.list("/one/a-0") == before


def test_retention_goes_over_all_logs() -> None:
    disks = Disks(config=small_segments(1000, retention_bytes=0))
    manager = disks.started()
    for partition in (A0, B0):
        fill(manager.get_or_create(partition), 7)
    assert manager.delete_expired(lambda partition: 7 if partition == A0 else 2) == 5
    a, b = manager.get(A0), manager.get(B0)
    assert a is not None
    assert b is not None
    assert (a.log_start_offset, b.log_start_offset) == (7, 2)


def test_producers_not_heard_of_for_a_day_are_forgotten(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0)
    log.append_as_leader(idempotent(0), 0, NOW_MS)
    log.append_as_leader(transactional(0, producer_id=8), 0, NOW_MS, NOT_VERIFIED)
    disks.clock.advance(86_399_999)
    assert manager.expire_producers(86_400_000) == 0
    disks.clock.advance(1)
    assert manager.expire_producers(86_400_000) == 1
    assert [each.producer_id for each in log.producers] == [8], "a transaction of it is open"


def test_a_directory_that_fails_takes_its_logs_offline_and_the_others_go_on() -> None:
    disks = Disks("/one", "/two")
    manager = disks.started()
    a0, a1, b0 = (manager.get_or_create(partition) for partition in (A0, A1, B0))
    for log in (a0, a1, b0):
        fill(log, 1)
    disks.files.fail_next_sync()
    with pytest.raises(ApiError):
        a0.sync()
    assert disks.offline == [("/one", [A0, B0])]
    with pytest.raises(ApiError) as refusal:
        fill(b0, 1)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    fill(a1, 1)
    assert manager.get_or_create(TopicPartition("c", 0)).directory == "/two/c-0"
    manager.close()
    assert not disks.files.exists("/one/.kafka_cleanshutdown")
    assert disks.files.exists("/two/.kafka_cleanshutdown")


def test_without_a_directory_nothing_can_be_created(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0)
    fill(log, 1)
    disks.files.fail_next_append(errno.EIO)
    with pytest.raises(ApiError):
        fill(log, 1)
    with pytest.raises(ApiError) as refusal:
        manager.get_or_create(A1)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
