"""Law: what the checkpoints say of a log that was deleted never reaches the next log of its name, and no line in a
checkpoint ever takes away records that are in the files."""

import errno
from collections.abc import Callable

import pytest

from moldau.core.ids import TopicPartition
from moldau.log.checkpoints import OffsetCheckpoint, render_lines
from moldau.log.data_directory import NOT_CHECKPOINTED_SUFFIX, DataDirectory
from moldau.log.manager import LogManager
from tests.log.helpers import fill, offsets, small_segments
from tests.log.test_manager import A0, TOPIC_ID, Disks

OTHER_ID = bytes(reversed(TOPIC_ID))
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@pytest.fixture
def disks() -> Disks:
    return Disks(config=small_segments(1000))


def old_life(manager: LogManager) -> None:
    """A log of 20 records, of which all four checkpoints have something to say."""
    old = manager.get_or_create(A0, TOPIC_ID)
    fill(old, 20)
    old.sync()
    old.advance_log_start(15)
    old.clean_offset = 12
    manager.checkpoint({A0: 20})


def marks(disks: Disks) -> list[str]:
    return [name for name in disks.files.list("/one/a-0") if name.endswith(NOT_CHECKPOINTED_SUFFIX)]


def crash(disks: Disks) -> LogManager:
    """The manager after a power cut on a strict disk."""
    disks.files.power_loss()
    return disks.started()


def delete(manager: LogManager) -> None:
    manager.delete(A0)


def set_stray(manager: LogManager) -> None:
    manager.set_stray(A0)


@pytest.mark.parametrize("leave", [delete, set_stray])
def test_a_topic_made_anew_keeps_its_synced_records_after_a_crash(
    disks: Disks, leave: Callable[[LogManager], None]
) -> None:
    manager = disks.started()
    old_life(manager)
    leave(manager)
    new = manager.get_or_create(A0, OTHER_ID)
    fill(new, 10)
    new.sync()
    again = crash(disks).get(A0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, offsets(again)) == (0, 10, list(range(10)))


def test_no_checkpointed_offset_of_the_old_topic_holds_for_the_new_one(disks: Disks) -> None:
    manager = disks.started()
    old_life(manager)
    manager.delete(A0)
    fill(manager.get_or_create(A0, OTHER_ID), 18)
    manager.get_or_create(A0).sync()
    again = crash(disks)
    log = again.get(A0)
    assert log is not None
    assert (log.log_start_offset, log.recovery_point, log.clean_offset) == (0, 0, 0)
    assert again.checkpointed_high_watermark(A0) == 0


def test_a_checkpoint_under_way_while_a_topic_is_made_anew_does_not_vouch_for_the_new_one(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = disks.started()
    old_life(manager)
    write = OffsetCheckpoint.write

    def remade_meanwhile(checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]) -> None:
        if manager.get_or_create(A0).topic_id == TOPIC_ID:
            manager.delete(A0)
            new = manager.get_or_create(A0, OTHER_ID)
            fill(new, 10)
            new.sync()
        write(checkpoint, offsets)

    with monkeypatch.context() as racing:
        racing.setattr(OffsetCheckpoint, "write", remade_meanwhile)
        manager.checkpoint({A0: 20})
    assert marks(disks)
    again = crash(disks).get(A0)
    assert again is not None
    assert offsets(again) == list(range(10))


def test_a_disk_that_is_full_when_the_checkpoints_are_due_changes_nothing_about_it(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = disks.started()
    old_life(manager)
    manager.delete(A0)
    new = manager.get_or_create(A0, OTHER_ID)
    fill(new, 10)
    new.sync()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as faulty:
        faulty.setattr(DataDirectory, "write_checkpoints", full)
        manager.checkpoint({A0: 10})
    again = crash(disks).get(A0)
    assert again is not None
    assert offsets(again) == list(range(10))


def test_the_checkpoints_count_once_they_were_written_with_the_log(disks: Disks) -> None:
    manager = disks.started()
    old_life(manager)
    manager.delete(A0)
    new = manager.get_or_create(A0, OTHER_ID)
    fill(new, 10)
    new.sync()
    assert len(marks(disks)) == 1
    manager.checkpoint_high_watermarks({A0: 9})
    assert marks(disks) == []
    assert disks.read("/one/cleaner-offset-checkpoint") == "0\n0\n"
    for directory in manager.directories:
        directory.release()  # kill -9: the files are as they are
    again = disks.started()
    log = again.get(A0)
    assert log is not None
    assert log.recovery_point == 10
    assert again.checkpointed_high_watermark(A0) == 9


def test_a_moved_log_start_of_a_new_log_survives_a_power_cut(disks: Disks) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0, TOPIC_ID)
    fill(log, 5)
    log.sync()
    manager.checkpoint({})
    log.advance_log_start(4)
    manager.checkpoint({})
    again = crash(disks).get(A0)
    assert again is not None
    assert again.log_start_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_records_are_never_thrown_away_on_the_word_of_a_checkpoint(disks: Disks, clean: bool) -> None:
    manager = disks.started()
    log = manager.get_or_create(A0, TOPIC_ID)
    fill(log, 10)
    log.sync()
    manager.close({A0: 10})
    for name in CHECKPOINTS:
        disks.files.write_atomically(f"/one/{name}", render_lines(["a 0 500"]))
    if not clean:
        disks.files.remove("/one/.kafka_cleanshutdown")
    again = disks.started()
    found = again.get(A0)
    assert found is not None
    assert (found.log_start_offset, offsets(found)) == (0, list(range(10)))
    assert found.clean_offset <= 10
    assert again.checkpointed_high_watermark(A0) <= 10


def test_a_line_in_another_directory_is_not_of_this_log() -> None:
    disks = Disks("/one", "/two")
    manager = disks.started()
    fill(manager.get_or_create(A0, TOPIC_ID), 5)
    manager.close({A0: 2})
    disks.files.write_atomically("/two/replication-offset-checkpoint", render_lines(["a 0 5"]))
    assert disks.started().checkpointed_high_watermark(A0) == 2


def test_deleting_many_partitions_syncs_nothing(disks: Disks) -> None:
    manager = disks.started()
    partitions = [TopicPartition("a", number) for number in range(100)]
    for partition in partitions:
        manager.get_or_create(partition, TOPIC_ID)
    manager.checkpoint({})
    syncs = disks.files.syncs
    for partition in partitions:
        manager.delete(partition)
    assert disks.files.syncs == syncs


def test_a_new_directory_is_new_until_the_cluster_knows_of_it() -> None:
    disks = Disks("/one", "/two")
    first = disks.started()
    assert first.new_directories == ["/one", "/two"]
    first.close()
    second = disks.started()
    assert second.new_directories == ["/one", "/two"], "the start before ended too soon"
    second.directories_are_known()
    second.close()
    disks.files.remove_tree("/two")
    third = disks.started()
    assert third.new_directories == ["/two"]


# The topic that a log is of


@pytest.mark.parametrize("names_kept", [False, True])
def test_records_that_were_synced_say_of_which_topic_they_are_after_a_power_cut(disks: Disks, names_kept: bool) -> None:
    made = disks.started().get_or_create(A0, TOPIC_ID)
    fill(made, 3)
    made.sync()
    disks.files.power_loss(names_kept=names_kept)
    found = disks.started().get(A0)
    assert found is not None
    assert (found.log_end_offset, found.topic_id) == (3, TOPIC_ID)


def test_a_process_that_ended_before_the_sync_leaves_it_to_the_next_one(disks: Disks) -> None:
    fill(disks.started().get_or_create(A0, TOPIC_ID), 3)
    disks.files.process_death()
    found = disks.started().get(A0)
    assert found is not None
    found.sync()
    assert crash(disks).get_or_create(A0, OTHER_ID).topic_id == TOPIC_ID


def test_a_log_that_lost_its_topic_s_id_is_given_it_by_the_topic_that_it_is_of(disks: Disks) -> None:
    fill(disks.started().get_or_create(A0, TOPIC_ID), 3)
    disks.files.process_death()
    disks.files.write_atomically("/one/a-0/partition.metadata", b"")  # as a power cut leaves what was not synced
    found = disks.started().get_or_create(A0, TOPIC_ID)
    assert (found.log_end_offset, found.topic_id) == (3, TOPIC_ID)
    found.sync()
    assert crash(disks).get_or_create(A0, OTHER_ID).topic_id == TOPIC_ID


def test_a_topic_s_id_that_cannot_be_written_now_does_not_take_the_log_offline(disks: Disks) -> None:
    fill(disks.started().get_or_create(A0, TOPIC_ID), 3)
    disks.files.process_death()
    disks.files.write_atomically("/one/a-0/partition.metadata", b"")
    manager = disks.started()
    disks.files.fail_next_append(errno.ENOSPC)
    found = manager.get_or_create(A0, TOPIC_ID)
    assert (found.failure, found.topic_id, found.is_named) == (None, TOPIC_ID, False)
    manager.get_or_create(A0, TOPIC_ID).sync()
    assert crash(disks).get_or_create(A0, OTHER_ID).topic_id == TOPIC_ID
