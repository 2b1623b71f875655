"""The logs of one broker over its data directories (`log.dirs`).

The manager opens and closes logs, writes the checkpoints and runs retention. A directory that fails takes its logs
offline; the other directories go on.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.core.clock import Clock
from moldau.core.descriptors import shares
from moldau.core.file_errors import is_short, passes
from moldau.core.files import Files
from moldau.core.ids import TopicPartition
from moldau.core.topic_config import TopicConfig
from moldau.log.ballast import BALLAST_BYTES_MAX
from moldau.log.data_directory import CheckpointedOffsets, DataDirectory, DirectoryError
from moldau.log.log import Log
from moldau.log.log_directory import DoomedFile
from moldau.log.open_files import OpenFiles
from moldau.log.strays import Judge, Strays, write_note
from moldau.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import Executor

log = logging.getLogger(__name__)

FOREVER_MS = 1 << 62

OfflineListener = Callable[[str, Sequence[Log]], None]
"""Listener for the path of a data directory that failed, with its logs; or for one log that was stopped. May be called
in the thread of a sync."""


class RefusedForNow(ApiError):
    """Error: a log could not be made for now, as there is no room or no descriptor."""


class LogManager:
    """The logs of this broker by partition."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        directories: Sequence[str],
        *,
        config_of: Callable[[str], TopicConfig],
        new_uuid: Callable[[], bytes],
        on_offline: OfflineListener | None = None,
        vital_topics: Container[str] = (),
        ballast_bytes: int = BALLAST_BYTES_MAX,
    ) -> None:
        """Make the manager; `vital_topics` are the coordinators' topics: on a full disk they take records for longer
        than others."""
        self._files = files
        self._clock = clock
        self._config_of = config_of
        self._new_uuid = new_uuid
        self._on_offline = on_offline
        self._vital_topics = vital_topics
        self._open_files = OpenFiles(shares())
        self._logs: dict[TopicPartition, Log] = {}
        self._homes: dict[TopicPartition, DataDirectory] = {}
        self._counts: Counter[DataDirectory] = Counter()
        self._marks: dict[Log, list[str]] = {}
        """Logs that are not in the checkpoint files yet, with the marks in their directories that say so."""
        self._unsynced_removals: set[Log] = set()
        self.strays = Strays(files)
        self._doomed: list[DoomedFile] = []
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._topics_before: frozenset[bytes] = frozenset()
        self.cut_short: set[TopicPartition] = set()
        """Logs that end below their checkpointed high watermark: they lack committed records."""
        self.was_clean = True
        """Whether the last user closed all the directories that could be read."""
        self.directories = [DataDirectory(files, path) for path in directories]
        for directory in self.directories:
            directory.ballast.bytes_max = ballast_bytes

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def belong_to_this_thread(self) -> None:
        """End the start: from now on appends and reads come from the thread that calls this."""
        self._open_files.belong_to_this_thread()

    # Starting

    def lock(self) -> None:
        """Lock the directories; raises DirectoryError if another broker has one."""
        for directory in self.directories:
            self._start(directory, DataDirectory.lock)
        for directory in self._online():
            self._start(directory, lambda each: each.ballast.look_first())
        self._need_one()

    def claim(self, broker_id: int, cluster_id: str, store_id: str | None = None) -> None:
        """Check `meta.properties` of all directories, then write it where it is missing; raises DirectoryError if one
        is another broker's."""
        for directory in self._online():
            self._start(directory, lambda each: each.check_owner(broker_id, cluster_id))
        for directory in self._online():
            self._start(directory, lambda each: each.claim(broker_id, cluster_id, self._new_uuid, store_id))
        self._need_one()

    @property
    def new_directories(self) -> list[str]:
        """The data directories that have not been part of the cluster yet: made for this start, or on a new disk."""
        return [directory.path for directory in self._online() if directory.is_new]

    def directories_are_known(self) -> None:
        """Note that the cluster knows the new directories: at the next start they are not new any more."""
        for directory in self._online():
            self._guard(directory, DataDirectory.is_known)

    def load(self, topics: Iterable[bytes] = ()) -> None:
        """Open every log that is there. `topics` are the ids of existing topics: where a directory cannot be read,
        their partitions may be in it, and are not made anew."""
        for directory in self._online():
            self._start(directory, self._load_directory)
        self._need_one()
        if len(self._online()) < len(self.directories):
            self._topics_before = frozenset(topics)

    def _load_directory(self, directory: DataDirectory) -> None:
        clean = directory.take_clean_mark()
        self.was_clean &= clean
        directory.remove_deleted()
        self.strays.find(directory)
        checkpointed = directory.read_checkpoints()
        partitions = directory.partitions()
        if not clean and partitions:
            log.info("%s had no clean shutdown: logs are recovered from their recovery points on", directory.path)
        for partition in partitions:
            if partition in self._logs:
                raise DirectoryError(f"{partition} is in {directory.path} and in {self._homes[partition].path}")
            marks = directory.marks_in(partition)
            self._open_found(directory, partition, clean, CheckpointedOffsets() if marks else checkpointed(partition))
            if marks:
                self._marks[self._logs[partition]] = marks
        directory.ballast.look()
        self._let_append(directory)

    def _open_found(
        self, directory: DataDirectory, partition: TopicPartition, clean: bool, known: CheckpointedOffsets
    ) -> None:
        """Open a log that is there. No checkpointed offset past its end is believed."""
        opened = self._open(directory, partition, None, clean, known.recovery_point, known.log_start_offset)
        opened.clean_offset = min(known.clean_offset, opened.log_end_offset)
        self._high_watermarks[partition] = min(known.high_watermark, opened.log_end_offset)
        if opened.log_end_offset < known.high_watermark:
            self.cut_short.add(partition)
            log.error(
                "%s: log end offset %d is below the high watermark %d: the disk has lost committed records",
                partition,
                opened.log_end_offset,
                known.high_watermark,
            )
        self._add(directory, opened)

    def _open(
        self,
        directory: DataDirectory,
        partition: TopicPartition,
        topic_id: bytes | None,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
    ) -> Log:
        return Log.open(
            self._files,
            self._clock,
            directory.directory_of(partition),
            partition,
            self._config_of(partition.topic),
            topic_id=topic_id,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            on_failure=lambda _, error: self._met(directory, error),
            open_files=self._open_files,
        )

    def _add(self, directory: DataDirectory, opened: Log) -> None:
        opened.on_stopped = lambda stopped: self._report_offline(directory, [stopped])
        self._logs[opened.topic_partition] = opened
        self._homes[opened.topic_partition] = directory
        self._counts[directory] += 1
        opened.refuse_appends(is_full=self._refuses(directory, opened.topic_partition))

    # Partitions

    def get_or_create(self, partition: TopicPartition, topic_id: bytes | None = None) -> Log:
        """The partition's log; a new one is made in the directory with the fewest logs."""
        known = self._logs.get(partition)
        if known is not None:
            if topic_id is not None and any(topic_id) and not known.is_named:
                _name_topic(known, topic_id)
            return known
        if topic_id is not None and topic_id in self._topics_before:
            # An empty log in place of one that was in sync would win an election.
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} may be in a directory that failed")
        directory = self._home_for(partition, topic_id)
        was_there = self._files.is_directory(directory.directory_of(partition))
        try:
            return self._create(directory, partition, topic_id)
        except OSError as error:
            if not was_there:
                with contextlib.suppress(OSError):
                    self._files.remove_tree(directory.directory_of(partition))
            self._met(directory, error)
            kind = RefusedForNow if passes(error) else ApiError
            raise kind(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} cannot be made: {error}") from error

    def _home_for(self, partition: TopicPartition, topic_id: bytes | None) -> DataDirectory:
        """The directory for a new log: the one with the fewest logs, among those where nothing is in its way."""
        online = sorted(self._online(), key=lambda each: (each.ballast.is_full, self._counts[each]))
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no data directory is online")
        for directory in online:
            if directory.is_free_for(partition, topic_id):
                return directory
        in_the_way = online[0].directory_of(partition)
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{in_the_way} is in the way and not a log of this topic: move it"
        )

    def _create(self, directory: DataDirectory, partition: TopicPartition, topic_id: bytes | None) -> Log:
        """A new log, which has no line in the checkpoints, whatever was deleted under its name before.

        The mark that says so is there before the first append, and as durable as the segment beside it.
        """
        created = self._open(directory, partition, topic_id, True, 0, 0)
        self._marks[created] = [directory.mark_not_checkpointed(partition, self._new_uuid())]
        self._add(directory, created)
        return created

    def delete(self, partition: TopicPartition) -> None:
        """Delete a partition; its files are removed later, with `remove_doomed`."""
        deleted, directory = self._forget(partition)
        if deleted is None or directory is None:
            return
        deleted.retire()
        due_ms = self._clock.now_ms() + deleted.config.file_delete_delay_ms
        self._guard(
            directory,
            lambda each: self._doomed.append(DoomedFile(due_ms, each.set_aside(partition, self._new_uuid()))),
        )

    def set_stray(self, partition: TopicPartition) -> None:
        """Let go of a partition that is not this broker's any more; its files stay, under a name that nobody looks
        at."""
        stray, directory = self._forget(partition)
        if stray is not None and directory is not None:
            stray.retire()
            self._guard(directory, lambda each: self._set_stray(each, stray))

    def _set_stray(self, directory: DataDirectory, stray: Log) -> None:
        now_ms = self._clock.now_ms()
        write_note(self._files, stray.directory, now_ms)
        path = directory.set_stray(stray.topic_partition, self._new_uuid())
        self.strays.add(path, stray.topic_partition, stray.topic_id, now_ms)

    def remove_strays(self, retention_ms: int, is_stray: Judge, path: str | None = None) -> None:
        """Remove the logs that were set aside longer ago than `retention_ms`, unless `is_stray` now says no. For a
        thread."""
        until_ms = self._clock.now_ms() - retention_ms
        for directory in self._chosen(path):
            self.strays.remove_old(directory.path, until_ms, is_stray)

    def leave_alone(self, partition: TopicPartition) -> None:
        """Let go of a log that may be another broker's; its files stay as they are, and nothing is made in their
        place."""
        known, directory = self._forget(partition)
        if known is not None and directory is not None:
            known.retire()
            self._guard(directory, lambda each: each.leave_alone(partition))

    def _forget(self, partition: TopicPartition) -> tuple[Log | None, DataDirectory | None]:
        self._high_watermarks.pop(partition, None)
        forgotten, directory = self._logs.pop(partition, None), self._homes.pop(partition, None)
        if forgotten is not None and directory is not None:
            self._counts[directory] -= 1
            self._marks.pop(forgotten, None)
            self._unsynced_removals.discard(forgotten)
        return forgotten, directory

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark that was checkpointed before the start; 0 where nothing is known."""
        return self._high_watermarks.get(partition, 0)

    def was_ours(self, partition: TopicPartition) -> bool:
        """Whether the directory of a partition belonged to this cluster before this start."""
        directory = self._homes.get(partition)
        return directory is not None and directory.was_ours

    def home_of(self, partition: TopicPartition) -> str | None:
        """The data directory that a partition is in."""
        directory = self._homes.get(partition)
        return None if directory is None else directory.path

    # What is done now and then

    def delete_expired(self, high_watermark_of: Callable[[TopicPartition], int]) -> int:
        """Run retention over all logs; returns the number of deleted segments. On the loop, as it only renames
        files."""
        now_ms = self._clock.now_ms()
        count = 0
        for each in self:
            if each.failure is None:
                with contextlib.suppress(ApiError):  # of one log: the others' segments go all the same
                    count += len(each.delete_expired(now_ms, high_watermark_of(each.topic_partition)))
        return count

    def expire_producers(self, expiration_ms: int) -> int:
        """Forget producers that were silent for so long (KIP-854), unless a transaction of theirs is open; how many."""
        now_ms = self._clock.now_ms()
        return sum(each.producers.expire(now_ms, expiration_ms) for each in self if each.failure is None)

    # Each of these is done for one data directory, by its path, or for all of them.

    def remove_doomed(self, path: str | None = None) -> None:
        """Remove the files and directories whose time has come. For a thread."""
        now_ms = self._clock.now_ms()
        for directory in self._chosen(path):
            due_ms = FOREVER_MS if directory.ballast.is_full else now_ms  # whoever still reads them has them open
            for each in self._logs_in(directory):
                each.remove_doomed(due_ms)
            inside = f"{directory.path}/"
            for doomed in [each for each in self._doomed if each.due_ms <= due_ms and each.path.startswith(inside)]:
                self._files.remove_tree(doomed.path)
                self._doomed.remove(doomed)

    @property
    def is_full(self) -> bool:
        """Whether the disk of some directory is full."""
        return any(directory.ballast.is_full for directory in self._online())

    def look_for_room(self, path: str | None = None) -> None:
        """Notice disks that are full, and disks that have room again. For a thread."""
        for directory in self._chosen(path):
            was_full = directory.ballast.is_full
            self._guard(directory, lambda each: each.ballast.look())
            if was_full or directory.ballast.is_full:
                self._let_append(directory)

    def _let_append(self, directory: DataDirectory) -> None:
        for each in self._logs_in(directory):
            each.refuse_appends(is_full=self._refuses(directory, each.topic_partition))

    def _refuses(self, directory: DataDirectory, partition: TopicPartition) -> bool:
        """Whether appends are refused, so that the little room left serves to make more."""
        ballast = directory.ballast
        return ballast.is_low if partition.topic in self._vital_topics else ballast.is_full

    def sync_sealed(self, path: str | None = None) -> None:
        """Make sealed segments durable, so that recovery need not look at them. For a thread."""
        for directory in self._chosen(path):
            for each in self._logs_in(directory):
                with contextlib.suppress(ApiError):  # it has taken itself offline, and said so
                    each.sync(sealed_only=True)

    def sync_all(self, path: str | None = None) -> None:
        """Make everything durable that was appended. For a thread."""
        for directory in self._chosen(path):
            for each in self._logs_in(directory):
                if each.log_end_offset > each.recovery_point:
                    with contextlib.suppress(ApiError):  # as above
                        each.sync()

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int], path: str | None = None) -> None:
        """Write the checkpoint files. For a thread."""
        for directory in self._chosen(path):
            self._guard(directory, lambda each: self._checkpoint(each, high_watermarks))

    def checkpoint_high_watermarks(
        self, high_watermarks: Mapping[TopicPartition, int], path: str | None = None
    ) -> None:
        """Write the high watermarks alone, where they have changed; all files where one lacks a log. For a thread."""
        for directory in self._chosen(path):
            if any(self._homes.get(each.topic_partition) is directory for each in list(self._marks)):
                self._guard(directory, lambda each: self._checkpoint(each, high_watermarks))
            else:
                self._guard(directory, lambda each: self._checkpoint_high_watermarks(each, high_watermarks))

    def _checkpoint_high_watermarks(
        self, directory: DataDirectory, high_watermarks: Mapping[TopicPartition, int]
    ) -> None:
        with directory.writing_checkpoints:
            directory.write_high_watermarks(_of(self._logs_in(directory), high_watermarks))

    def _checkpoint(self, directory: DataDirectory, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write all four files, then remove the marks of the logs that are in them.

        A log that is deleted meanwhile may leave a line behind. Its successor is not among `logs`, and has a mark of
        its own.
        """
        with directory.writing_checkpoints:
            logs = self._logs_in(directory)
            recovery_points = {each.topic_partition: each.recovery_point for each in logs}
            for each in logs:
                if not _write_epochs(each):  # then nothing is vouched for, and the next start checks the whole log
                    recovery_points.pop(each.topic_partition, None)
            if directory.failure is not None:
                return
            moved = [each for each in logs if each.log_start_offset > each.segments.first.base_offset]
            directory.write_checkpoints(
                recovery_points,
                {each.topic_partition: each.log_start_offset for each in moved},
                _of(logs, high_watermarks),
                _clean_offsets(logs),
            )
            self._remove_marks(logs)
            for each in self._unsynced_removals.intersection(moved):
                self._files.sync_directory(each.directory)  # with a mark that came back the start would be forgotten
                self._unsynced_removals.discard(each)

    def _remove_marks(self, logs: Iterable[Log]) -> None:
        for each in logs:
            for mark in self._marks.pop(each, ()):
                self._files.remove(mark)
                self._unsynced_removals.add(each)

    def checkpoint_cleaned(self, partition: TopicPartition) -> None:
        """Write the clean offsets of all logs in the directory of `partition`. For a thread."""
        home = self._homes.get(partition)
        if home is not None and home.failure is None:
            with home.writing_checkpoints:
                offsets = _clean_offsets(self._logs_in(home))
                self._guard(home, lambda each: each.cleaner_offsets.write(offsets))

    def close(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None, threads: "Executor | None" = None
    ) -> bool:
        """Close all logs, in `threads` if given; then write the checkpoints; then mark the directories clean.

        False: a directory could not be closed, and will be checked by its next user.
        """
        run_all = map if threads is None else threads.map
        is_clean = True
        for directory in self._online():
            is_clean &= all(list(run_all(_close, self._logs_in(directory)))) and self._guard(
                directory, lambda each: self._mark_clean(each, high_watermarks or {})
            )
        for directory in self.directories:
            directory.release()
        return is_clean

    def _mark_clean(self, directory: DataDirectory, high_watermarks: Mapping[TopicPartition, int]) -> None:
        if directory.failure is None:
            self._checkpoint(directory, high_watermarks)
            directory.mark_clean()

    # Failures

    def _logs_in(self, directory: DataDirectory) -> list[Log]:
        return [each for name, each in list(self._logs.items()) if self._homes.get(name) is directory]

    def _online(self) -> list[DataDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    def _chosen(self, path: str | None) -> list[DataDirectory]:
        return [directory for directory in self._online() if path in (None, directory.path)]

    def _need_one(self) -> None:
        if not self._online():
            reasons = ", ".join(f"{each.path} ({each.failure})" for each in self.directories)
            raise DirectoryError(f"no data directory can be used: {reasons}")

    def _start(self, directory: DataDirectory, action: Callable[[DataDirectory], object]) -> None:
        """Do a step of the start. An error that may pass is no reason to start without the directory: the start
        fails."""
        if directory.failure is not None:
            return
        try:
            action(directory)
        except OSError as error:
            if passes(error):
                raise
            self._directory_failed(directory, error)

    def _guard(self, directory: DataDirectory, action: Callable[[DataDirectory], object]) -> bool:
        """Do some work; whether it was done. After a refusal the caller tries again at the next interval."""
        try:
            action(directory)
        except OSError as error:
            if error.errno != directory.refusal and passes(error):
                log.warning("%s: an operation is refused for now: %s", directory.path, error)
            directory.refusal = error.errno
            self._met(directory, error)
            return False
        except ApiError:  # of one log, which has said so
            return False
        directory.refusal = None
        return True

    def _met(self, directory: DataDirectory, error: OSError) -> None:
        """Handle a failed file operation in a directory. May be called in the thread of a sync."""
        if not passes(error):
            self._directory_failed(directory, error)
        elif is_short(error):
            self._open_files.shed()
        elif directory.ballast.give_up():
            self._let_append(directory)

    def _directory_failed(self, directory: DataDirectory, error: OSError) -> None:
        if directory.failure is not None:
            return
        directory.failure = error
        logs = self._logs_in(directory)
        log.error("%s is offline with %d partitions: %s", directory.path, len(logs), error)
        for each in logs:
            each.fail(error)
        self._report_offline(directory, logs)

    def _report_offline(self, directory: DataDirectory, logs: Sequence[Log]) -> None:
        if self._on_offline is not None:
            self._on_offline(directory.path, logs)


def _of(logs: Iterable[Log], high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    known = ((each.topic_partition, high_watermarks.get(each.topic_partition)) for each in logs)
    return {partition: offset for partition, offset in known if offset is not None}


def _clean_offsets(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {each.topic_partition: each.clean_offset for each in logs if each.clean_offset}


def _name_topic(each: Log, topic_id: bytes) -> None:
    """Write the id of its topic into a log's directory again, which a power cut had taken."""
    try:
        each.name_topic(topic_id)
    except ApiError as error:
        log.warning("%s: its topic's id is not written yet: %s", each.topic_partition, error)


def _write_epochs(each: Log) -> bool:
    """Write the leader epochs; whether a recovery point may be written now. False for a log that was deleted meanwhile
    or has failed."""
    try:
        each.checkpoint()
    except ApiError:
        if each.failure is None:
            raise
        return False
    return True


def _close(each: Log) -> bool:
    """Close a log; whether its next user has nothing to check."""
    try:
        each.close()
    except ApiError as error:
        log.error("%s could not be closed: %s", each.topic_partition, error)
        return False
    return each.failure is None
