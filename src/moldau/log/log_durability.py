"""The recovery point of one log: a sync moves it on, a truncation moves it back.

The law: records below the recovery point are in files that were synced, under names that were synced. A sync runs in a
thread while the loop appends, rolls, drops segments and truncates; it vouches for nothing that a truncation has touched
meanwhile. Checkpoints are written by others and later, so they may vouch for more than a truncation has left. Then a
note in the directory says so; it is durable before the first file changes, and is removed when all is durable again.
"""

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.core.file_errors import SyncError
from moldau.core.files import Files, SyncEngine
from moldau.log.log_directory import LogDirectory
from moldau.log.recovery import LoadedLog, forget_cut, note_cut
from moldau.log.segment import Segment
from moldau.protocol.errors import ApiError

if TYPE_CHECKING:
    from moldau.log.log import Log

OnSynced = Callable[[ApiError | None], None]
"""Listener for the end of a sync, or the reason of its failure."""


class LogDurability:
    """Owner of the `recovery_point` of one log: nobody else moves it. The number itself is in the log, as each produce
    reads it.

    Each call is handed the log, and nothing here keeps it.
    """

    def __init__(self, files: Files, directory: LogDirectory, loaded: LoadedLog) -> None:
        self._files = files
        self._directory = directory
        self._snapshots = loaded.snapshots
        self._to_sync = dict.fromkeys(loaded.segments.from_offset(loaded.recovery_point)[:-1])
        self.truncations = 0  # counted when one begins and when it ends: odd while one is under way
        self._synced_truncations = 0
        self._point_max = loaded.recovery_point  # no checkpoint names a larger one, since a truncation either
        self._start_max = loaded.log_start_offset  # and no larger log start
        self._is_cut_noted = loaded.is_cut_noted
        self._caught_up_after = -1  # so many truncations what the checkpoints may vouch for was durable again
        self._one_sync = threading.Lock()
        self._recovery_point_lock = threading.Lock()

    def loaded(self, log: "Log", *, clean: bool, recovery_point: int, log_start_offset: int) -> None:
        """Take over the checkpointed state of a log that was loaded."""
        self._point_max = max(self._point_max, recovery_point)
        self._start_max = max(self._start_max, log_start_offset)
        if not clean or log.size_bytes == 0:
            # An empty log may be new, or the rest of one that could not be made: not even its directory is durable.
            self._directory.may_be_new()
        if clean:
            self._directory.closed_end = log.log_end_offset
        else:
            self._synced_truncations = -1  # recovery may have cut

    # Syncs

    def sync(self, log: "Log", *, sealed_only: bool) -> int:
        """Make everything durable that was appended before this call; returns the offset up to which the log is
        durable."""
        with self._one_sync:
            return log.guarded(partial(self._sync, log, sealed_only))

    def _sync(self, log: "Log", sealed_only: bool) -> int:
        # The order matters, as the loop may roll at any moment: what `end` counts is in `active` or in `sealed`.
        truncations, end = self.truncations, log.log_end_offset
        active = log.segments.active
        sealed = list(self._to_sync)
        for segment in sealed:
            self._sync_segment(log, segment, truncations, indexes=True)
        if sealed:
            self._snapshots.sync(active.base_offset)
        if sealed_only:
            end = min(end, active.base_offset)
        elif end > log.recovery_point or truncations != self._synced_truncations:
            self._sync_segment(log, active, truncations, indexes=False)
            self._synced_truncations = truncations
        self._directory.sync()
        with self._recovery_point_lock:
            if self._is_undisturbed(truncations):
                log.recovery_point = max(log.recovery_point, end)
                for segment in sealed:
                    self._to_sync.pop(segment, None)
        return log.recovery_point

    def sync_later(self, log: "Log", engine: SyncEngine, then: OnSynced) -> bool:
        """Do as `sync`, without waiting, where it takes one fdatasync and no more; False: that is for a thread.

        From the loop. It holds no lock until it ends: `end` was in this file, under a durable name, when it began.
        """
        if log.failure is not None or not self._one_sync.acquire(blocking=False):
            return False  # a sync that is under way may have taken note of names that are not durable yet
        active, truncations, end = log.segments.active, self.truncations, log.log_end_offset
        file = active.open_file
        is_more = bool(self._to_sync) or self._directory.has_changed or active.txn_index.is_changed
        self._one_sync.release()
        if is_more or file is None or truncations != self._synced_truncations or end <= log.recovery_point:
            return False
        return file.sync_later(engine, partial(self._synced, log, truncations, end, then))

    def _synced(self, log: "Log", truncations: int, end: int, then: OnSynced, error: int) -> None:
        if error:
            failed = SyncError(error, os.strerror(error), log.directory)
            then(log.io_error(failed))
            return
        with self._recovery_point_lock:
            if self._is_undisturbed(truncations):
                log.recovery_point = max(log.recovery_point, end)
        then(None)

    def _sync_segment(self, log: "Log", segment: Segment, truncations: int, *, indexes: bool) -> None:
        try:
            segment.sync(indexes=indexes)
        except FileNotFoundError:
            if self._is_undisturbed(truncations) and segment in log.segments:
                raise
            # The loop has dropped the segment meanwhile: nothing of it has to be durable.

    def _is_undisturbed(self, truncations: int) -> bool:
        """Whether no truncation has begun since the count was `truncations`, and none was under way then."""
        return truncations == self.truncations and truncations % 2 == 0

    def sealed(self, segment: Segment) -> None:
        """Sync a sealed segment with the next sync, and then never again: nothing is appended to it any more."""
        self._to_sync[segment] = None

    def dropped(self, segment: Segment) -> None:
        """Forget a segment that was dropped: nothing of it has to be durable."""
        self._to_sync.pop(segment, None)

    # Truncations

    def begin_truncation(self, log: "Log", offset: int) -> None:
        """Let no sync vouch for records at or behind `offset` from now on, and no checkpoint: a durable note says so.

        If that note is refused, nothing has happened.
        """
        with self._recovery_point_lock:
            self.truncations += 1
            self._point_max = max(self._point_max, log.recovery_point)
            self._start_max = max(self._start_max, log.log_start_offset)
            log.recovery_point = min(log.recovery_point, offset)
        self._directory.closed_end = -1
        if offset < max(self._point_max, self._start_max):
            try:
                note_cut(self._files, self._directory.path, offset)
            except OSError:
                self.truncations += 1
                raise
            self._is_cut_noted = True

    def end_truncation(self) -> None:
        """Let syncs vouch for the log again."""
        self.truncations += 1

    def forget_cut(self) -> None:
        """Remove the note of a truncation once everything is durable that a checkpoint may vouch for, epochs
        included."""
        if self._is_cut_noted and self._caught_up_after == self.truncations:
            forget_cut(self._files, self._directory.path)
            self._is_cut_noted = False
            self._directory.changed()

    # Checkpoints and the end

    def checkpoint(self, log: "Log") -> None:
        """Write the files that must be on disk before a recovery point beyond them is."""
        truncations = self.truncations
        is_caught_up = log.recovery_point >= self._point_max and log.log_start_offset >= self._start_max
        log.guarded(log.leader_epochs.flush)
        if is_caught_up:
            self._caught_up_after = truncations

    def complete_files(self, log: "Log") -> None:
        """Write and sync the files that are made from the batches and were not worth it before; `sync` does the
        rest."""
        active, end = log.segments.active, log.log_end_offset
        active.seal()
        self.forget_cut()
        if end not in self._snapshots.offsets:
            self._snapshots.take(log.producers, end)
            self._directory.changed()
        if self._directory.closed_end != end:
            active.sync_indexes()
            self._snapshots.sync(end)
