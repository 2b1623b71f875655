"""The directory of one log: files come into it and leave it, and a sync makes their names durable.

The law: a file that leaves is renamed at once and removed later. A crash in between leaves a name that recovery does
not believe.
"""

import logging
from typing import NamedTuple

from moldau.core.files import Files
from moldau.core.topic_config import TopicConfig
from moldau.log.checkpoints import CheckpointError, read_topic_id, write_topic_id
from moldau.log.compaction.job import disown_swap
from moldau.log.data_directory import TOPIC_ID_FILE
from moldau.log.segment import DELETED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, Segment, file_name

logger = logging.getLogger(__name__)


class DoomedFile(NamedTuple):
    """A file renamed out of the log, to be removed at `due_ms`."""

    due_ms: int
    path: str


class LogDirectory:
    """The names in one log's directory. `sync` and `remove_doomed` may be called from a thread."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.parent = path.rpartition("/")[0]
        self.doomed: list[DoomedFile] = []
        self.closed_end = -1  # where the log ended when its last user closed it, as long as no file has changed
        self._has_changed = False
        self._parent_has_changed = False
        self._id_may_be_lost = False
        self._may_hold_swaps = False

    def changed(self) -> None:
        """Let the next sync make the names durable, as some have been added or removed."""
        self._has_changed = True
        self.closed_end = -1

    def may_be_new(self) -> None:
        """Let the next sync make the names durable, the name of the directory itself, and the topic's id in it."""
        self._has_changed = self._parent_has_changed = self._id_may_be_lost = True

    @property
    def has_changed(self) -> bool:
        """Whether the next sync has names to make durable; unless one is under way."""
        return self._has_changed or self._parent_has_changed

    def sync(self) -> None:
        """Sync the topic's id, and the directories whose entries have changed; a refusal leaves them to the next sync.

        Records whose directory does not say of which topic they are would be taken for those of a later topic of the
        name.
        """
        has_changed, self._has_changed = self._has_changed, False
        try:
            if self._id_may_be_lost:
                self._sync_topic_id()
            if has_changed:
                self._files.sync_directory(self.path)
            if self._parent_has_changed:
                self._files.sync_directory(self.parent)
                self._parent_has_changed = False
        except OSError:
            self._has_changed = True
            raise

    # Files that come

    def new_segment(self, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
        """An empty segment that is ready to be written."""
        segment = Segment.create(self._files, self.path, base_offset, config.index_interval_bytes, now_ms)
        segment.prepare_to_grow(config.segment_index_bytes)
        self.changed()
        return segment

    def stage(self, base_offset: int, suffix: str) -> None:
        """Name a compacted segment, whose files end in `suffix`, so that recovery would swap it in."""
        self._may_hold_swaps = True
        for each in SEGMENT_SUFFIXES:
            path = self._stem(base_offset) + each
            if self._files.exists(path + suffix):
                self._files.rename(path + suffix, path + SWAP_SUFFIX)

    def has_swap(self, base_offset: int) -> bool:
        """Whether a compacted segment waits to replace the segments that it was made of."""
        return self._files.exists(f"{self._stem(base_offset)}.log{SWAP_SUFFIX}")

    def finish_swap(self, base_offset: int) -> None:
        """Give a compacted segment its names, `.log` first: with `.log.swap` gone recovery only renames the rest."""
        for suffix in SEGMENT_SUFFIXES:
            path = self._stem(base_offset) + suffix
            if self._files.exists(path + SWAP_SUFFIX):
                self._files.rename(path + SWAP_SUFFIX, path)
        self.changed()

    def disown_swaps(self) -> None:
        """Give up all swaps: the segments that the compacted ones were made of are about to go."""
        if self._may_hold_swaps:
            for name in self._files.list(self.path):
                if name.endswith(".log" + SWAP_SUFFIX):
                    disown_swap(self._files, self.path, int(name.partition(".")[0]))
            self._may_hold_swaps = False

    def load_topic_id(self, topic_id: bytes | None) -> bytes | None:
        """The id in the directory; `topic_id` is written there if it has none."""
        path = f"{self.path}/{TOPIC_ID_FILE}"
        known = None
        try:
            known = read_topic_id(self._files, path)
        except CheckpointError as error:
            logger.warning("%s is ignored: %s", path, error)
        if known is None and topic_id is not None:
            if any(topic_id):  # zeros: the topic has none yet
                self.write_topic_id(topic_id)
            return topic_id
        return known

    def write_topic_id(self, topic_id: bytes) -> None:
        """Write the id of the topic; the next sync makes it durable."""
        write_topic_id(self._files, f"{self.path}/{TOPIC_ID_FILE}", topic_id)
        self._id_may_be_lost = True
        self.changed()

    def _sync_topic_id(self) -> None:
        path = f"{self.path}/{TOPIC_ID_FILE}"
        self._id_may_be_lost = False
        try:
            if self._files.exists(path):
                self._files.open(path).sync()
        except OSError:
            self._id_may_be_lost = True
            raise

    # Files that go

    def doom(self, segment: Segment, due_ms: int) -> None:
        """Rename a segment's files out of the log. A thread removes them: unlinking a gigabyte takes its time.

        The caller calls `changed` at the end: a sync that began before may not have seen the new names.
        """
        stem = self._stem(segment.base_offset)
        for path in [stem + suffix for suffix in SEGMENT_SUFFIXES if self._files.exists(stem + suffix)]:
            self._files.rename(path, path + DELETED_SUFFIX)
            self.doomed.append(DoomedFile(due_ms, path + DELETED_SUFFIX))

    def remove_doomed(self, now_ms: int) -> None:
        """Remove the files whose time has come."""
        for doomed in [each for each in self.doomed if each.due_ms <= now_ms]:
            try:
                self._files.remove(doomed.path)
            except OSError as error:
                logger.warning("%s is not removed yet: %s", doomed.path, error)
            else:
                self.doomed.remove(doomed)

    def _stem(self, base_offset: int) -> str:
        return f"{self.path}/{file_name(base_offset, '')}"
