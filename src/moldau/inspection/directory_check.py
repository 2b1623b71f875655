"""Whole data directories: which partitions are in them, what their checkpoints say, and a check of each."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from moldau.core.properties import parse_properties
from moldau.inspection.findings import Report
from moldau.inspection.partition_check import READABLE, Expected, check_partition, is_partition, log_size
from moldau.inspection.reading import ReadError, content, is_in_use, names_in
from moldau.inspection.segment_check import BLOCK_BYTES, Progress
from moldau.log.checkpoints import CheckpointError, parse_lines

META_FILE = "meta.properties"
CLUSTER_FILE = "cluster.properties"
CLEAN_FILE = ".kafka_cleanshutdown"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,9})")
_ASIDE = re.compile(r"(?P<partition>.+-[0-9]+)\.[0-9a-f]{32}-(?P<what>delete|stray|future)")

Place = tuple[str, int]


class Directory(NamedTuple):
    """A data directory, and who used it last."""

    path: str
    is_running: bool
    is_clean: bool


class Partition(NamedTuple):
    """A partition's directory and the knowledge about it from outside."""

    path: str
    expected: Expected
    size: int


class Found(NamedTuple):
    """Partitions that a path leads to."""

    kind: str
    partitions: list[Partition]
    directories: list[Directory]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.partitions)


def find(path: str, report: Report) -> Found:
    """The partitions below a path: that of a partition, of a data directory, or of a directory above several.

    ReadError: it is none of them.
    """
    path = os.path.normpath(path)
    names = names_in(path)
    if META_FILE in names.files or any(name in names.files for name in CHECKPOINTS):
        found = _data_directory(path, report)
        return Found("data directory", *found)
    if is_partition(path):
        above = os.path.dirname(os.path.abspath(path))
        return Found("partition", [_partition(path, os.path.basename(os.path.abspath(path)), above, report)], [])
    brokers = [f"{path}/{name}" for name in names.directories if _is_data_directory(f"{path}/{name}")]
    if brokers:
        parts = [_data_directory(each, report) for each in brokers]
        return Found(
            "directory of a cluster", [p for part, _ in parts for p in part], [d for _, ds in parts for d in ds]
        )
    partitions = [name for name in names.directories if _NAME.fullmatch(name) and _may_be_partition(f"{path}/{name}")]
    if partitions:
        return Found("data directory", *_data_directory(path, report))
    raise ReadError(
        f"{path} is neither a partition's directory nor a data directory: no segment and no {META_FILE} in it"
    )


def check(found: Found, report: Report, progress: Progress, began: Callable[[str], None]) -> None:
    """Check partitions one after the other; `began` is told the path of each."""
    buffer = memoryview(bytearray(BLOCK_BYTES))
    for each in found.partitions:
        began(each.path)
        check_partition(each.path, each.expected, report, buffer, progress)


def _is_data_directory(path: str) -> bool:
    return os.path.exists(f"{path}/{META_FILE}") or os.path.exists(f"{path}/{CHECKPOINTS[0]}")


def _may_be_partition(path: str) -> bool:
    try:
        return is_partition(path)
    except ReadError:
        return True  # told when it is checked


def _data_directory(path: str, report: Report) -> tuple[list[Partition], list[Directory]]:
    state = Directory(path, is_in_use(path), os.path.exists(f"{path}/{CLEAN_FILE}"))
    names = names_in(path)
    if META_FILE in names.files:
        check_meta(f"{path}/{META_FILE}", report)
    offsets = _Offsets(path, report)
    partitions = []
    for name in names.directories:
        aside = _ASIDE.fullmatch(name)
        if aside is not None and aside["what"] != "future":
            what = {"delete": "its topic was deleted", "stray": "the cluster has no use for it"}[aside["what"]]
            remedy = "the broker removes it" if aside["what"] == "delete" else "remove it if nobody misses its records"
            report.note(f"{path}/{name}", what, remedy)
        elif (aside or _NAME.fullmatch(name)) and _may_be_partition(f"{path}/{name}"):
            expected = offsets.of(aside["partition"] if aside else name, state)
            partitions.append(Partition(f"{path}/{name}", expected, log_size(f"{path}/{name}")))
    if not state.is_running:
        _tell_missing(path, offsets, {os.path.basename(each.path) for each in partitions}, report)
    return partitions, [state]


def _partition(path: str, name: str, above: str, report: Report) -> Partition:
    """One partition, with what the directory above it says."""
    state = Directory(above, is_in_use(above), os.path.exists(f"{above}/{CLEAN_FILE}"))
    return Partition(path, _Offsets(above, report).of(name, state), log_size(path))


class _Offsets:
    """The checkpoints of a data directory."""

    def __init__(self, path: str, report: Report) -> None:
        self.tables: dict[str, Mapping[Place, int]] = {}
        for name in CHECKPOINTS:
            self.tables[name] = dict(_checkpoint(f"{path}/{name}", report))

    def of(self, name: str, state: Directory) -> Expected:
        """The knowledge about the partition whose directory has this name."""
        match = _NAME.fullmatch(name)
        if match is None:
            return Expected(state.is_running, state.is_clean)
        place = (match["topic"], int(match["number"]))
        points = [self.tables[name].get(place) for name in CHECKPOINTS[:3]]
        return Expected(state.is_running, state.is_clean, *points)


def _checkpoint(path: str, report: Report) -> Iterator[tuple[Place, int]]:
    if not os.path.exists(path):
        return
    remedy = "stop the broker and remove the file: the next start goes back further, and writes it again"
    try:
        data = content(path)
        for topic, partition, offset in parse_lines(data) if data else []:
            yield (topic, int(partition)), int(offset)
    except ReadError as error:
        report.problem(path, str(error), READABLE)
    except (CheckpointError, ValueError) as error:
        report.problem(path, f"it is no checkpoint: {error}", remedy)


def _tell_missing(path: str, offsets: _Offsets, present: set[str], report: Report) -> None:
    """Tell partitions of which the checkpoints know that they held records, and whose directories are gone."""
    marks = offsets.tables["replication-offset-checkpoint"]
    for (topic, number), offset in marks.items():
        if offset > 0 and f"{topic}-{number}" not in present:
            what = f"{topic}-{number} had {offset} as its high watermark, and has no directory now"
            remedy = "normal after the topic was deleted or moved; else look for the directory on other disks"
            report.note(f"{path}/replication-offset-checkpoint", what, remedy)


def check_meta(path: str, report: Report) -> dict[str, str]:
    """Check the file that says whose a data directory is; returns what it says."""
    try:
        known = dict(parse_properties(content(path).decode()))
    except ReadError as error:
        report.problem(path, str(error), READABLE)
        return {}
    except UnicodeDecodeError:
        report.problem(path, "it is not text", "bring the file back from a copy: it says whose the directory is")
        return {}
    lacking = [name for name in ("cluster.id",) if name not in known]
    lacking += [] if "broker.id" in known or "node.id" in known else ["broker.id"]
    if lacking:
        what = f"it does not say {' and '.join(lacking)}"
        report.problem(path, what, "add the line: the broker's log and its configuration name it")
    return known
