"""Kafka's small text files."""

import pytest

from moldau.core.ids import TopicPartition
from moldau.core.memory_files import MemoryFiles
from moldau.log.checkpoints import CheckpointError, OffsetCheckpoint, read_topic_id, write_topic_id

PATH = "/d/recovery-point-offset-checkpoint"
TOPIC_ID = bytes.fromhex("25deb634da664445bd5b8c19590f33b8")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/d")
    return files


def test_offsets_are_written_as_kafka_writes_them(files: MemoryFiles) -> None:
    OffsetCheckpoint(files, PATH).write({TopicPartition("a.b-c", 0): 12, TopicPartition("x", 31): 0})
    assert files.read(PATH) == b"0\n2\na.b-c 0 12\nx 31 0\n"
    assert OffsetCheckpoint(files, PATH).read() == {TopicPartition("a.b-c", 0): 12, TopicPartition("x", 31): 0}


def test_an_unchanged_checkpoint_is_not_written_again(files: MemoryFiles) -> None:
    checkpoint = OffsetCheckpoint(files, PATH)
    checkpoint.write({TopicPartition("a", 0): 1})
    syncs = files.syncs
    checkpoint.write({TopicPartition("a", 0): 1})
    assert files.syncs == syncs
    checkpoint.write({TopicPartition("a", 0): 2})
    assert files.syncs > syncs


@pytest.mark.parametrize(
    "content", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"]
)
def test_a_broken_checkpoint_says_nothing(files: MemoryFiles, content: bytes) -> None:
    files.write_atomically(PATH, content)
    assert OffsetCheckpoint(files, PATH).read() == {}


def test_a_topic_id_is_written_as_kafka_writes_it(files: MemoryFiles) -> None:
    write_topic_id(files, "/d/partition.metadata", TOPIC_ID)
    assert files.read("/d/partition.metadata") == b"version: 0\ntopic_id: Jd62NNpmREW9W4wZWQ8zuA"
    assert read_topic_id(files, "/d/partition.metadata") == TOPIC_ID


def test_no_file_is_no_topic_id(files: MemoryFiles) -> None:
    assert read_topic_id(files, "/d/partition.metadata") is None


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: Jd62NN"])
def test_a_torn_topic_id_is_an_error(files: MemoryFiles, content: bytes) -> None:
    files.write_atomically("/d/partition.metadata", content)
    with pytest.raises(CheckpointError):
        read_topic_id(files, "/d/partition.metadata")
