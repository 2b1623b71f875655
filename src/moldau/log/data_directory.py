"""One directory of `log.dirs`: its owner, the mark of a clean stop, its partitions and its checkpoints."""

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from moldau.core.files import DirectoryLock, Files
from moldau.core.ids import TopicPartition
from moldau.core.properties import parse_properties
from moldau.log.ballast import Ballast
from moldau.log.checkpoints import CheckpointError, OffsetCheckpoint, read_topic_id, render_uuid

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
STORE_FILE = "metadata.properties"
"""File with the id of the metadata store that the data directory was last used with."""
LEFT_ALONE_FILE = "left-alone"
"""File with the names, one per line, of directories that hold a log whose owner nobody knows. When a person removes a
name, the log is used or set aside again."""
NEW_DIRECTORY_FILE = ".new"
"""File in a data directory that has not been part of a cluster yet: it holds nothing that the cluster counts on."""

NOT_CHECKPOINTED_SUFFIX = ".not-checkpointed"
"""End of the name of a mark in a partition's directory. It stays until the checkpoints have been written with this log:
until then a line under its name belongs to a log that was deleted."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""Directory in which a KRaft broker of Apache Kafka keeps its metadata: not a partition of ours."""

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
TOPIC_ID_FILE = "partition.metadata"
KAFKAS_DIRECTORIES = frozenset(("__cluster_metadata-0", "remote-log-index-cache", "lost+found"))
"""Directories that Apache Kafka or the file system makes beside partitions."""

_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,9})")
_ASIDE_NAME = re.compile(r"(?P<partition>.+-[0-9]+)\.[0-9a-f]{32}(?P<suffix>-delete|-stray|-future)")
_OWN_NAME = re.compile(
    r"[0-9]{20}\.(index|timeindex|txnindex|snapshot)(\.[a-z]+)?|leader-epoch-checkpoint(\.tmp)?"
    rf"|partition\.metadata\.tmp|[0-9a-f]{{32}}{re.escape(NOT_CHECKPOINTED_SUFFIX)}"
)
_SEGMENT_NAME = re.compile(r"[0-9]{20}\.log(\.deleted|\.swap|\.cleaned)?")
NAME_CHARACTERS_MAX = 255
NAMES_IN_A_LINE_MAX = 20
UNREADABLE = "?"


class DirectoryError(Exception):
    """Error: the data directory is not ours to use, or is in use."""


class CheckpointedOffsets(NamedTuple):
    """The offsets of one partition in the checkpoints of its data directory."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    clean_offset: int = 0


class DataDirectory:
    """A directory of partition directories, locked while we use it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._lock: DirectoryLock | None = None
        self.path = path
        self.writing_checkpoints = threading.Lock()
        """Lock of the thread that writes checkpoints: each file is written by one thread at a time."""
        self.failure: OSError | None = None
        self.ballast = Ballast(files, path)
        self.refusal: int | None = None
        """The error with which the last operation was refused; None if it was done."""
        self.directory_id: str | None = None
        self.is_new = False
        """Whether the directory got its id at this start, or at a start that did not come as far as `is_known`."""
        self.was_ours = False
        """Whether the directory belonged to this cluster before this start: only then does a missing topic prove a
        stray."""
        self.recovery_points = OffsetCheckpoint(files, f"{path}/recovery-point-offset-checkpoint")
        self.high_watermarks = OffsetCheckpoint(files, f"{path}/replication-offset-checkpoint")
        self._written_high_watermarks: dict[TopicPartition, int] | None = None
        self.log_start_offsets = OffsetCheckpoint(files, f"{path}/log-start-offset-checkpoint")
        self.cleaner_offsets = OffsetCheckpoint(files, f"{path}/cleaner-offset-checkpoint")

    def lock(self) -> None:
        self._files.make_directory(self.path, private=True)
        self._lock = self._files.lock(f"{self.path}/{LOCK_FILE}")
        if self._lock is None:
            raise DirectoryError(f"{self.path} is in use by another broker")

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check_owner(self, broker_id: int, cluster_id: str) -> None:
        """Raise DirectoryError if the directory belongs to another broker; change nothing."""
        known = self.meta_properties()
        _check_owner(self.path, known, "cluster.id", cluster_id)
        _check_owner(self.path, known, "node.id" if "node.id" in known else "broker.id", str(broker_id))

    def claim(
        self, broker_id: int, cluster_id: str, new_uuid: Callable[[], bytes], store_id: str | None = None
    ) -> None:
        """Note that a new directory belongs to this broker of this cluster, and every directory to this store."""
        known = self.meta_properties()
        self.is_new = not known or self._files.exists(f"{self.path}/{NEW_DIRECTORY_FILE}")
        self.was_ours = known.get("cluster.id") == cluster_id
        if store_id is not None and store_id != self.store_id():
            self._files.write_atomically(f"{self.path}/{STORE_FILE}", f"version=0\nstore.id={store_id}\n".encode())
        if "directory.id" in known and ("broker.id" in known or "node.id" in known) and "cluster.id" in known:
            self.directory_id = known["directory.id"]
            return
        self.directory_id = known.get("directory.id") or render_uuid(new_uuid())
        if "node.id" not in known:
            known = {"version": "0", "broker.id": str(broker_id), **known}
        known = {**known, "cluster.id": cluster_id, "directory.id": self.directory_id}
        lines = "".join(f"{name}={value}\n" for name, value in known.items())
        if self.is_new:
            self._files.open(f"{self.path}/{NEW_DIRECTORY_FILE}", create=True)  # durable with the file below
        self._files.write_atomically(f"{self.path}/{META_PROPERTIES_FILE}", lines.encode())

    def is_known(self) -> None:
        """Note that the cluster may count on this directory from now on: at the next start it is not new any more."""
        if self.is_new:
            self._files.remove(f"{self.path}/{NEW_DIRECTORY_FILE}")
            self._files.sync_directory(self.path)  # or a power cut would put logs in doubt that were made since

    def meta_properties(self) -> dict[str, str]:
        return self._properties(META_PROPERTIES_FILE)

    def store_id(self) -> str | None:
        """The id of the metadata store that the directory was last used with; None if none was written."""
        return self._properties(STORE_FILE).get("store.id")

    def _properties(self, name: str) -> dict[str, str]:
        path = f"{self.path}/{name}"
        if not self._files.exists(path):
            return {}
        try:
            return dict(parse_properties(self._files.read(path).decode()))
        except UnicodeDecodeError as error:
            raise DirectoryError(f"{path} is broken ({error}): whose the directory is cannot be told") from error

    def take_clean_mark(self) -> bool:
        """Whether the last user closed the directory. Ask once: from now on it counts as unclean."""
        path = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        was_clean = self._files.exists(path)
        if was_clean:
            self._files.remove(path)
            self._files.sync_directory(self.path)
        return was_clean

    def mark_clean(self) -> None:
        self._files.write_atomically(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", b'{"version":0,"brokerEpoch":-1}')

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have a directory here. A name alone proves nothing: see `holds_a_log`."""
        found: list[TopicPartition] = []
        unknown: list[str] = []
        left_alone = self._left_alone()
        for name in filter(self._is_directory, self._files.list(self.path)):
            partition = partition_of(name)
            inside = self._names_in(name) if partition is not None else []
            if partition is not None and holds_a_log(inside) and name not in left_alone:
                found.append(partition)
            elif not self._is_accounted_for(name, inside, partition):
                unknown.append(name)
        if unknown:
            log.warning("%s: not partitions of this broker, left alone: %s", self.path, some_names(unknown))
        return found

    def leave_alone(self, partition: TopicPartition) -> None:
        """Note that a directory is to be left alone at every start from now on."""
        names = sorted({str(partition), *filter(self._is_directory, self._left_alone())})
        self._files.write_atomically(f"{self.path}/{LEFT_ALONE_FILE}", "".join(f"{name}\n" for name in names).encode())

    def _left_alone(self) -> set[str]:
        path = f"{self.path}/{LEFT_ALONE_FILE}"
        return set(self._files.read(path).decode().split()) if self._files.exists(path) else set()

    def _names_in(self, name: str) -> list[str]:
        """The names in a directory here; one name that says so if it may not be read."""
        try:
            return self._files.list(f"{self.path}/{name}")
        except PermissionError:
            return [UNREADABLE]

    def _is_accounted_for(self, name: str, inside: Sequence[str], partition: TopicPartition | None) -> bool:
        if partition is not None:
            return is_unfinished(inside)
        return name in KAFKAS_DIRECTORIES or _ASIDE_NAME.fullmatch(name) is not None or name.startswith("metadata.")

    def remove_deleted(self) -> None:
        """Remove directories whose removal had begun when the last user stopped."""
        for name in self._files.list(self.path):
            path, aside = f"{self.path}/{name}", _ASIDE_NAME.fullmatch(name)
            if aside is None or aside["suffix"] != DELETE_SUFFIX or not self._is_directory(name):
                continue
            if self._files.exists(f"{path}/{META_PROPERTIES_FILE}"):
                log.warning("%s is the data directory of a broker and is left alone", path)
            else:
                self._files.remove_tree(path)

    def set_aside_as(self, suffix: str) -> Iterator[tuple[str, TopicPartition, bytes | None]]:
        """Path, partition and topic id of the logs that were set aside with `suffix`."""
        for name in self._files.list(self.path):
            aside, path = _ASIDE_NAME.fullmatch(name), f"{self.path}/{name}"
            partition = partition_of(aside["partition"]) if aside is not None and aside["suffix"] == suffix else None
            if partition is not None and self._is_directory(name):
                inside = self._names_in(name)
                if holds_a_log(inside) and META_PROPERTIES_FILE not in inside:
                    yield path, partition, _topic_id_in(self._files, path)

    def is_free_for(self, partition: TopicPartition, topic_id: bytes | None) -> bool:
        """Whether a log may be made in the partition's directory: it is missing, or holds only an unfinished log of
        that topic."""
        path = self.directory_of(partition)
        if not self._files.exists(path):
            return True
        if not self._files.is_directory(path):
            return False
        names = self._names_in(str(partition))
        if names and str(partition) in self._left_alone():
            return False
        return is_unfinished(names) or (holds_a_log(names) and _topic_id_in(self._files, path) in (None, topic_id))

    def directory_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    def set_aside(self, partition: TopicPartition, unique_id: bytes) -> str:
        """Rename a partition's directory so that it will be removed; returns its new path."""
        return self._rename(partition, unique_id, DELETE_SUFFIX)

    def set_stray(self, partition: TopicPartition, unique_id: bytes) -> str:
        """Rename a partition's directory so that nobody looks at it; returns its new path."""
        return self._rename(partition, unique_id, STRAY_SUFFIX)

    def _rename(self, partition: TopicPartition, unique_id: bytes, suffix: str) -> str:
        ending = f"-{partition.partition}.{unique_id.hex()}{suffix}"
        path = f"{self.path}/{partition.topic[: NAME_CHARACTERS_MAX - len(ending)]}{ending}"
        self._files.rename(self.directory_of(partition), path)
        return path

    def mark_not_checkpointed(self, partition: TopicPartition, unique_id: bytes) -> str:
        """Mark a log as one that no checkpoint line belongs to yet; returns the path of the mark.

        The name is unique: a thread that removes the mark of a log which has been deleted meanwhile removes no other
        mark.
        """
        path = f"{self.directory_of(partition)}/{unique_id.hex()}{NOT_CHECKPOINTED_SUFFIX}"
        self._files.open(path, create=True)
        return path

    def marks_in(self, partition: TopicPartition) -> list[str]:
        """The paths of the marks in a partition's directory which say that no checkpoint line belongs to its log."""
        directory = self.directory_of(partition)
        names = self._files.list(directory)
        return [f"{directory}/{name}" for name in names if name.endswith(NOT_CHECKPOINTED_SUFFIX)]

    def read_checkpoints(self) -> Callable[[TopicPartition], CheckpointedOffsets]:
        """The offsets in the four checkpoint files, by partition; zeros where a file says nothing."""
        files = (self.recovery_points, self.log_start_offsets, self.high_watermarks, self.cleaner_offsets)
        found = [each.read() for each in files]
        return lambda partition: CheckpointedOffsets(*(offsets.get(partition, 0) for offsets in found))

    def write_checkpoints(
        self,
        recovery_points: Mapping[TopicPartition, int],
        log_start_offsets: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
        clean_offsets: Mapping[TopicPartition, int],
    ) -> None:
        self.recovery_points.write(recovery_points)
        self.log_start_offsets.write(log_start_offsets)
        self.cleaner_offsets.write(clean_offsets)
        self.write_high_watermarks(high_watermarks)

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoint of high watermarks, unless they are the same as in the last one."""
        if high_watermarks != self._written_high_watermarks:
            self.high_watermarks.write(high_watermarks)
            self._written_high_watermarks = dict(high_watermarks)

    def _is_directory(self, name: str) -> bool:
        return self._files.is_directory(f"{self.path}/{name}")


def partition_of(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no partition's name."""
    match = _PARTITION_NAME.fullmatch(name)
    if match is None or match["topic"] == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(match["topic"], int(match["number"]))


def holds_a_log(names: Iterable[str]) -> bool:
    """Whether a directory with these files belongs to a partition: it holds the file with a topic id, or a segment.

    Any directory may be called `photos-2019`; one that is no partition is not touched.
    """
    return any(name == TOPIC_ID_FILE or _SEGMENT_NAME.fullmatch(name) for name in names)


def is_unfinished(names: Iterable[str]) -> bool:
    """Whether a directory with a partition's name holds only the files of a log that has no segment yet.

    A broker that ended while it made the log, or a power cut, may leave such a directory. It is used when the partition
    is made.
    """
    return all(_OWN_NAME.fullmatch(name) for name in names)


def _topic_id_in(files: Files, directory: str) -> bytes | None:
    try:
        return read_topic_id(files, f"{directory}/{TOPIC_ID_FILE}")
    except CheckpointError:
        return None  # torn: the file is written without a sync


def some_names(names: Sequence[str]) -> str:
    """A bounded number of names, for a log line."""
    more = len(names) - NAMES_IN_A_LINE_MAX
    return ", ".join(names[:NAMES_IN_A_LINE_MAX]) + (f" and {more} more" if more > 0 else "")


def _check_owner(path: str, known: Mapping[str, str], name: str, ours: str) -> None:
    if name in known and known[name] != ours:
        raise DirectoryError(f"{path} belongs to {name} {known[name]}, not to {ours}")
