"""Strays: logs that were set aside, in directories called `<partition>.<id>-stray`, and the time since when.

The law: a stray is removed only if a note in it says since when it is one. The note is written by the one who had the
proof that the cluster has no use for the log. A stray without a note is kept.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from moldau.core.files import Files
from moldau.core.ids import TopicPartition
from moldau.core.properties import parse_properties
from moldau.log.data_directory import STRAY_SUFFIX, DataDirectory, some_names

log = logging.getLogger(__name__)

NOTE_FILE = "stray.properties"

Judge = Callable[[bytes | None, TopicPartition], bool]
"""Function that says whether the cluster still has no use for a log of this topic id and partition."""


class Stray(NamedTuple):
    """A log that was set aside. `since_ms` is None without a note; the topic's name may be cut to fit the file name."""

    path: str
    partition: TopicPartition
    topic_id: bytes | None
    since_ms: int | None


def write_note(files: Files, directory: str, now_ms: int) -> None:
    """Write a note into a directory that it is a stray, proved to be one at `now_ms`."""
    path = f"{directory}/{NOTE_FILE}"
    files.remove(path)
    files.open(path, create=True).append([f"version=0\nsince.ms={now_ms}\n".encode()])


class Strays:
    """The strays in the data directories of a broker."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._all: list[Stray] = []

    def __iter__(self) -> Iterator[Stray]:
        return iter(list(self._all))

    def find(self, directory: DataDirectory) -> None:
        """Look for strays in a directory."""
        self._all += [
            Stray(path, partition, topic_id, self._since_ms(path))
            for path, partition, topic_id in directory.set_aside_as(STRAY_SUFFIX)
        ]

    def add(self, path: str, partition: TopicPartition, topic_id: bytes | None, now_ms: int) -> None:
        """Add a log that was set aside just now."""
        self._all.append(Stray(path, partition, topic_id, now_ms))

    def note(self, now_ms: int, is_stray: Judge) -> None:
        """Write notes for strays of an earlier version, where their topic id proves it; log the names of all strays."""
        for number, each in enumerate(self._all):
            if each.since_ms is None and each.topic_id is not None and is_stray(each.topic_id, each.partition):
                write_note(self._files, each.path, now_ms)
                self._all[number] = each._replace(since_ms=now_ms)
        if self._all:
            names = some_names([each.path for each in self._all])
            log.warning("%d stray logs are kept for log.stray.retention.ms: %s", len(self._all), names)

    def remove_old(self, inside: str, until_ms: int, is_stray: Judge) -> None:
        """Remove the strays in a data directory that have been there since `until_ms` or longer. For a thread."""
        for each in list(self._all):
            if each.since_ms is None or each.since_ms > until_ms or not each.path.startswith(f"{inside}/"):
                continue
            if is_stray(each.topic_id, each.partition):
                log.info("%s has been a stray for long enough and is removed", each.path)
                self._files.remove_tree(each.path)
                self._all.remove(each)

    def _since_ms(self, path: str) -> int | None:
        note = f"{path}/{NOTE_FILE}"
        if not self._files.exists(note):
            return None
        since = parse_properties(self._files.read(note).decode(errors="replace")).get("since.ms", "")
        return int(since) if since.isascii() and since.isdecimal() else None
