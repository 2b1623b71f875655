"""A follower whose disk is full lags and leaves the ISR; it comes back when there is room, and nobody waits for it."""

import errno
import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    NewTopic,
)

from moldau.core.files import Buffer, File
from moldau.core.real_files import RealFile, RealFiles
from moldau.testing.clusters import ClusterInThread

PROPERTIES = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "100"}
TIMEOUT_S = 20.0


class FillableFiles(RealFiles):
    """Real files; the disk of one broker may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = "nothing"
        self.refused = itertools.count()

    def check(self, path: str) -> None:
        if self.full in path:
            next(self.refused)
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def open(self, path: str, *, create: bool = False, ahead: bool = False) -> File:  # noqa: ARG002  # never ahead
        return FillableFile(self, path, create=create)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check(path)
        super().write_atomically(path, data)

    def room(self, directory: str) -> tuple[int, int]:
        total, free = super().room(directory)
        return total, 0 if self.full in f"{directory}/" else free


class FillableFile(RealFile):
    """One of them."""

    __slots__ = ("_files",)

    def __init__(self, files: FillableFiles, path: str, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._files = files

    def append(self, chunks: Sequence[Buffer], size: int | None = None) -> int:
        self._files.check(self.path)
        return super().append(chunks, size)

    def append_one(self, data: Buffer, size: int) -> int:
        self._files.check(self.path)
        return super().append_one(data, size)


@pytest.fixture
def files() -> FillableFiles:
    return FillableFiles()


@pytest.fixture
def brokers(tmp_path: Path, files: FillableFiles) -> Iterator[ClusterInThread]:
    made = ClusterInThread(tmp_path, 2, PROPERTIES, files=files)
    with ExitStack() as stack:
        for number, broker in made.brokers.items():
            made.start(number)
            stack.callback(broker.stop)
        made.wait(lambda image: len(image.brokers) == 2)
        yield made


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(count):
        producer.produce("t", b"v", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def test_a_follower_without_room_lags_and_comes_back(
    brokers: ClusterInThread, files: FillableFiles, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(TIMEOUT_S)
    leader = brokers.wait_for_leader("t")
    follower = 3 - leader
    produce(brokers.bootstrap, 10)
    brokers.wait_for_isr("t", {1, 2})

    files.full = f"/broker-{follower}/"
    produce(brokers.bootstrap, 10)
    brokers.wait_for_isr("t", {leader})
    assert next(files.refused) < 100, "it tries again now and then, not all the time"

    files.full = "nothing"
    brokers.wait_for_isr("t", {1, 2})
    produce(brokers.bootstrap, 10)
    logs = [path.read_bytes() for path in tmp_path.glob("broker-*/t-0/*.log")]
    assert len(logs) == 2
    assert logs[0] == logs[1]
