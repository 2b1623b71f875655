"""Where leaders' epochs start and end."""

import pytest

from moldau.core.memory_files import MemoryFiles
from moldau.log.leader_epochs import EpochEnd, EpochStart, LeaderEpochs

PATH = "/d/leader-epoch-checkpoint"
LOG_END = 100


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    return files


@pytest.fixture
def epochs(files: MemoryFiles) -> LeaderEpochs:
    epochs = LeaderEpochs(files, PATH)
    for epoch, start in [(2, 10), (4, 30), (7, 60)]:
        epochs.assign(epoch, start)
    return epochs


def test_epochs_are_written_as_kafka_writes_them(files: MemoryFiles, epochs: LeaderEpochs) -> None:
    epochs.flush()
    assert files.read(PATH) == b"0\n3\n2 10\n4 30\n7 60\n"
    again = LeaderEpochs(files, PATH)
    again.load()
    assert again.entries() == epochs.entries()


def test_nothing_is_written_when_nothing_changed(files: MemoryFiles, epochs: LeaderEpochs) -> None:
    epochs.flush()
    syncs = files.syncs
    epochs.assign(7, 99)
    epochs.flush()
    assert files.syncs == syncs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, EpochEnd(-1, -1)),
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(2, 30)),
        (3, EpochEnd(2, 30)),
        (6, EpochEnd(4, 60)),
        (7, EpochEnd(7, LOG_END)),
        (8, EpochEnd(-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_starts(epochs: LeaderEpochs, asked: int, answer: EpochEnd) -> None:
    assert epochs.end_offset_for(asked, LOG_END) == answer


def test_without_epochs_the_answer_is_unknown(files: MemoryFiles) -> None:
    assert LeaderEpochs(files, PATH).end_offset_for(0, LOG_END) == EpochEnd(-1, -1)


def test_the_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_at(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 2, 2, 4, 7]


def test_a_new_epoch_at_the_start_of_an_older_one_replaces_it(epochs: LeaderEpochs) -> None:
    epochs.assign(9, 60)
    assert epochs.entries() == (EpochStart(2, 10), EpochStart(4, 30), EpochStart(9, 60))


def test_an_older_epoch_changes_nothing(epochs: LeaderEpochs) -> None:
    before = epochs.entries()
    epochs.assign(5, 80)
    assert epochs.entries() == before


def test_truncation_at_the_end_drops_epochs_that_start_there_or_later(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(60)
    assert epochs.latest == 4
    epochs.truncate_from_end(31)
    assert epochs.latest == 4


def test_truncation_at_the_start_moves_the_epoch_in_force(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_start(45)
    assert epochs.entries() == (EpochStart(4, 45), EpochStart(7, 60))


def test_a_broken_file_counts_as_missing(files: MemoryFiles) -> None:
    files.write_atomically(PATH, b"0\n3\n1 2\n")
    epochs = LeaderEpochs(files, PATH)
    epochs.load()
    assert epochs.entries() == ()
