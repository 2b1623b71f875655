"""One partition of a broker over a disk that may stop or fail, and its promises so far.

`World` does to the log what a broker does and notes all requests and promises; `check` holds a recovered log against
them, `check_in_service` a log that has survived an error.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from moldau.broker.cleaner import Cleaner
from moldau.core.broker_config import BrokerConfig
from moldau.core.clock import ManualClock
from moldau.core.faulty_files import FaultyFiles, Stopped
from moldau.core.files import Files
from moldau.core.ids import TopicPartition
from moldau.core.topic_config import TopicConfig
from moldau.log.compaction.cleaner import clean
from moldau.log.compaction.job import CleaningError, CleanJob, CleanResult
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.retention import expired_count
from moldau.protocol.errors import ApiError
from moldau.records.batch import Record, build_batch, iter_records
from moldau.records.validate import prepare_own_batch
from moldau.requests.parts import Parts
from tests.log.helpers import NOW_MS, batches

PARTITION = TopicPartition("events", 3)
PRODUCER_ID = 7
CLUSTER = "a-cluster"
MADE_FROM_BATCHES = (".log", ".index", ".timeindex", ".txnindex")


class Sent(NamedTuple):
    """A record as it was handed to the log, in a batch of its own."""

    value: bytes
    key: bytes
    epoch: int
    sequence: int
    timestamp: int


@dataclass(eq=False)
class Promises:
    """Requests to the log, and its promises."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    tried: dict[int, set[bytes]] = field(default_factory=dict)
    """All values that were ever to be written at an offset."""
    content: dict[int, bytes] = field(default_factory=dict)
    """Records that a reader finds now."""
    kept: dict[int, bytes] = field(default_factory=dict)
    """Records that a sync has vouched for."""
    leaving: set[int] = field(default_factory=set)
    """Offsets whose records may be gone, as that was asked for."""
    cut: set[bytes] = field(default_factory=set)
    deleted: set[bytes] = field(default_factory=set)
    """Records that retention may delete: they may come back, and their epochs need not."""
    gone: set[bytes] = field(default_factory=set)
    """Records that were truncated, after which a sync has vouched for the rest."""

    def leave(self, offsets: Iterable[int]) -> list[int]:
        """Let these offsets go from now on, though they need not have gone."""
        leaving = [offset for offset in offsets if offset in self.content]
        self.leaving.update(leaving)
        for offset in leaving:
            self.kept.pop(offset, None)
        return leaving

    def left(self, offsets: Iterable[int], *, are_cut: bool) -> None:
        """Note that these offsets are gone."""
        for offset in offsets:
            value = self.content.pop(offset)
            self.leaving.discard(offset)
            (self.cut if are_cut else self.deleted).add(value)

    def vouched(self, end: int) -> None:
        self.kept.update((offset, value) for offset, value in self.content.items() if offset < end)
        for offset in self.leaving:
            self.kept.pop(offset, None)
        self.gone |= self.cut

    def copy(self) -> "Promises":
        tried = {offset: set(values) for offset, values in self.tried.items()}
        return Promises(
            dict(self.sent), tried, dict(self.content), dict(self.kept), set(self.leaving), set(self.cut),
            set(self.deleted), set(self.gone),
        )  # fmt: skip

    def __hash__(self) -> int:
        sets = (self.content.items(), self.kept.items(), self.leaving, self.cut, self.deleted, self.gone)
        return hash(tuple(map(frozenset, sets)))

    def adopt(self, found: dict[int, bytes]) -> None:
        """Take the records found as the present content; the next user of the log goes on from it."""
        self.content = dict(found)
        self.leaving.clear()
        self.cut.difference_update(found.values())


class InThisThread(Executor):
    """Executor that works at once, and `then` does something that comes while the loop waits."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self._then = then

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            result = work(*arguments, **named)
            self._then()
            done.set_result(result)
        except BaseException as error:
            done.set_exception(error)
        return done


class CleanerHere:
    """Worker that cleans in this thread, and `then` does something that comes before the loop hears of it."""

    worker_id = 1

    def __init__(self, files: Files, then: Callable[[], None]) -> None:
        self._files = files
        self._then = then

    async def run(self, job: CleanJob, bytes_per_second: float) -> CleanResult:  # noqa: ARG002  # as fast as it can
        try:
            result = clean(self._files, job)
        except OSError as error:
            raise CleaningError(str(error)) from error
        self._then()
        return result

    def kill(self) -> None: ...

    async def close(self) -> None: ...


class Interruption:
    """Work of the loop that comes once, as soon as it `may`; the log's answer is taken later."""

    def __init__(self, may: Callable[[], bool], work: Callable[[], None]) -> None:
        self._may = may
        self._work = work
        self._has_come = False
        self.refusal: ApiError | None = None

    def come(self) -> None:
        if not self._has_come and self._may():
            self._has_come = True
            try:
                self._work()
            except ApiError as error:
                self.refusal = error


class World:
    """A broker's logs over a disk, with all its promises."""

    def __init__(self, disk: Files, data: str, config: TopicConfig, promises: Promises | None = None) -> None:
        self.disk = disk
        self.data = data
        self.config = config
        self.files = FaultyFiles(disk)
        self.clock = ManualClock(NOW_MS)
        self.promises = promises or Promises()
        self._uuids = itertools.count(1)
        self._numbers = itertools.count(len(self.promises.sent))
        self._manager: LogManager | None = None
        self._log: Log | None = None
        self.is_over = False

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None
        return self._manager

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    @property
    def is_offline(self) -> bool:
        log_has_failed = self.log.failure is not None and self.manager.get(PARTITION) is self.log
        return log_has_failed or self.manager.directories[0].failure is not None

    def start(self) -> None:
        self._manager = LogManager(
            self.files,
            self.clock,
            [self.data],
            config_of=lambda _: self.config,
            new_uuid=lambda: next(self._uuids).to_bytes(16, "big"),
        )
        self.manager.lock()
        self.manager.claim(1, CLUSTER)
        self.manager.load()
        self._log = self.manager.get(PARTITION)
        if self._log is None:
            self.create()

    def create(self) -> None:
        topic_id = next(self._uuids).to_bytes(16, "little")
        try:
            self._log = self.manager.get_or_create(PARTITION, topic_id)
        except ApiError:  # whoever wants it tries again
            self._log = self.manager.get_or_create(PARTITION, topic_id)

    def release(self) -> None:
        """Free the locks, as the kernel does at the end of the process."""
        for directory in self.manager.directories if self._manager is not None else ():
            directory.release()

    # What may be done to a log

    def append(self, size: int = 20, *, key: bytes = b"k", epoch: int = 0, count: int = 1) -> None:
        for _ in range(count):
            number, offset, promises = next(self._numbers), self.log.log_end_offset, self.promises
            known = self.log.producers.by_id.get(PRODUCER_ID)
            sequence = known.batches[-1].last_sequence + 1 if known is not None else 0
            sent = Sent(b"%d " % number + b"v" * size, key, epoch, sequence, NOW_MS + number)
            promises.sent[sent.value] = sent
            promises.tried.setdefault(offset, set()).add(sent.value)
            assert self.log.append_as_leader(prepared(sent), epoch, NOW_MS).base_offset == offset
            promises.content[offset] = sent.value

    def sync(self) -> None:
        self.promises.vouched(self.log.sync())

    def sync_sealed(self) -> None:
        self.manager.sync_sealed()

    def truncate(self, offset: int) -> None:
        leaving = self.promises.leave([each for each in self.promises.content if each >= offset])
        self.log.truncate_to(offset)
        self.promises.left(leaving, are_cut=True)

    def start_over(self, offset: int) -> None:
        leaving = self.promises.leave(list(self.promises.content))
        self.log.truncate_fully_and_start_at(offset)
        self.promises.left(leaving, are_cut=True)

    def delete_records(self, before: int) -> None:
        leaving = self.promises.leave([each for each in self.promises.content if each < before])
        self.log.advance_log_start(before)
        self.promises.left(leaving, are_cut=False)

    def delete_expired(self) -> None:
        log, end = self.log, self.log.log_end_offset
        with self.files.not_counted():
            count = expired_count(log, self.clock.now_ms(), end)
        bases = [*(segment.base_offset for segment in log.segments), end]
        leaving = self.promises.leave([each for each in self.promises.content if each < bases[count]])
        went = self.manager.delete_expired(lambda _: end)
        if went == count:
            assert log.log_start_offset >= bases[count]
            self.promises.left(leaving, are_cut=False)
        elif not self.is_offline:
            self.check_in_service()

    def compact(self) -> None:
        """Clean everything but the active segment, as the broker does."""
        self.compact_while(lambda: None, is_staged=False)

    def compact_while(self, work: Callable[[], None], *, is_staged: bool) -> None:
        """Clean, while the loop does other work: before it hears of the result, or before it swaps it in."""
        self._leave_repeated()
        interruption = Interruption(lambda: not is_staged or self._has_swap(), work)
        asyncio.run(self._clean(interruption))
        if not self.files.is_stopped and interruption.refusal is not None:
            raise interruption.refusal
        self._end_compaction()

    def _leave_repeated(self) -> None:
        """Allow the records to go that have a later one of the same key."""
        promises = self.promises
        last = {promises.sent[value].key: offset for offset, value in sorted(promises.content.items())}
        promises.leave(set(promises.content).difference(last.values()))

    def _end_compaction(self) -> None:
        promises = self.promises
        if self.files.is_stopped:
            raise Stopped
        if self.log.failure is None:
            found = self.read()
            for offset in [each for each in promises.content if each not in found]:
                assert offset in promises.leaving, f"{promises.content[offset][:9]!r} at {offset} is missing"
                promises.left([offset], are_cut=False)

    def _has_swap(self) -> bool:
        return any(name.endswith(".log.swap") for name in self.disk.list(self.log.directory))

    async def _clean(self, interruption: "Interruption") -> None:
        parts = SimpleNamespace(
            config=BrokerConfig({}),
            clock=self.clock,
            logs=self.manager,
            replicas=SimpleNamespace(
                replica=lambda *_: SimpleNamespace(last_stable_offset=self.log.log_end_offset),
            ),
        )

        async def worker() -> CleanerHere:
            return CleanerHere(self.files, interruption.come)

        cleaning = Cleaner(cast("Parts", parts), self.files, InThisThread(interruption.come), worker)
        cleaning.look()
        await cleaning.idle()

    def checkpoint(self) -> None:
        self.manager.checkpoint({PARTITION: self.log.log_end_offset})

    def remove_doomed(self) -> None:
        self.clock.advance(self.config.file_delete_delay_ms + 1)
        self.manager.remove_doomed()

    def delete_topic(self) -> None:
        leaving = self.promises.leave(list(self.promises.content))
        self.manager.delete(PARTITION)
        if self.disk.is_directory(self.log.directory):
            self.is_over = True  # nobody can make it anew before the next start
        else:
            self.promises.left(leaving, are_cut=True)

    def close(self) -> None:
        self.manager.close({PARTITION: self.log.log_end_offset})
        self.is_over = True
        if self.disk.exists(f"{self.data}/.kafka_cleanshutdown"):
            self.promises.vouched(self.log.log_end_offset)

    # What is there

    def read(self) -> dict[int, bytes]:
        """The records by offset, after a check of their batches and of the log."""
        with self.files.not_counted():
            return self._read()

    def _read(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        log, last_epoch = self.log, -1
        for header, data in batches(log):
            for record in iter_records(data):
                assert record.value is not None
                if record.offset >= log.log_start_offset:
                    assert record.offset not in found, f"offset {record.offset} twice"
                    found[record.offset] = record.value
            assert header.partition_leader_epoch >= last_epoch, "a record of an older leader behind a newer one's"
            last_epoch = header.partition_leader_epoch
            if found.get(header.base_offset) not in self.promises.deleted:
                assert log.leader_epochs.epoch_at(header.base_offset) == last_epoch
        return found

    def check(self, *, is_power_loss: bool) -> dict[int, bytes]:
        """Hold a recovered log against the promises; returns its records."""
        promises, log, found = self.promises, self.log, self.read()
        for offset, value in found.items():
            assert value in promises.tried.get(offset, ()), f"nobody wrote {value[:9]!r} at {offset}"
        due = promises.kept if is_power_loss else promises.content | promises.kept
        for offset, value in due.items():
            if offset not in promises.leaving:
                assert found.get(offset) == value, f"{value[:9]!r} at {offset} is missing: {sorted(found)}"
        back = (promises.gone if is_power_loss else promises.cut).intersection(found.values())
        assert not back, f"cut off and back: {[value[:9] for value in back]}"
        if not self.config.is_compacted:
            assert list(found) == list(range(log.log_start_offset, log.log_end_offset))
        self._check_times(found)
        self._check_sequences(found)
        return found

    def check_in_service(self) -> None:
        """Check a log that has survived an error: nothing that was promised may be missing, and nobody is misled."""
        promises, found = self.promises, self.read()
        for offset, value in promises.content.items():
            assert offset in promises.leaving or found.get(offset) == value, f"{value[:9]!r} at {offset} is missing"
        for offset, value in found.items():
            assert value == promises.content.get(offset), f"{value[:9]!r} at {offset} was refused, or is cut off"
        promises.adopt(found)

    def _check_times(self, found: dict[int, bytes]) -> None:
        for offset, value in found.items():
            at = self.log.offset_for_timestamp(self.promises.sent[value].timestamp)
            assert at is not None, f"the time of {offset} is not known"
            assert at.offset == offset, f"the time of {offset} is found at {at.offset}"

    def _check_sequences(self, found: dict[int, bytes]) -> None:
        """Check that the last batch is recognised."""
        if found and not self.config.is_compacted:
            offset, value = max(found.items())
            result = self.log.append_as_leader(prepared(self.promises.sent[value]), 0, NOW_MS)
            assert (result.duplicate, result.base_offset) == (True, offset)

    def state(self) -> object:
        """The content of the partition's files."""
        names = [name for name in self.disk.list(self.log.directory) if name.endswith(MADE_FROM_BATCHES)]
        return (
            {name: self.disk.read(f"{self.log.directory}/{name}") for name in names},
            (self.log.log_start_offset, self.log.log_end_offset),
            self.log.leader_epochs.entries(),
        )


def prepared(sent: Sent) -> Any:
    return prepare_own_batch(
        build_batch(
            [Record(0, sent.timestamp, sent.key, sent.value)],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sent.sequence,
        )
    )
