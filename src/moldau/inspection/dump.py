"""Dump of any file of a data directory, by its name."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from moldau.inspection.dump_indexes import dump_offset_index, dump_time_index
from moldau.inspection.dump_segments import LOG_SUFFIX, SegmentOptions, dump_segment
from moldau.inspection.dump_small_files import (
    CHECKPOINT_COLUMNS,
    PROPERTY_FILES,
    TOPIC_ID_FILE,
    dump_checkpoint,
    dump_producers,
    dump_properties,
    dump_txn_index,
)
from moldau.inspection.faults import Faults
from moldau.inspection.reading import ReadError
from moldau.inspection.rows import Row

KRAFT_SNAPSHOT_SUFFIX = ".checkpoint"
RENAMED = (".deleted", ".swap", ".cleaned")
"""Ends of names that a segment's files get on their way out of a log, or into it."""


class DumpOptions(NamedTuple):
    """Wishes of whoever dumps files."""

    segment: SegmentOptions = SegmentOptions()
    sanity_only: bool = False
    verify_only: bool = False


def dump_file(path: str, options: DumpOptions, faults: Faults) -> Iterator[Row]:
    """Rows of a file. ReadError: it cannot be read, or is none of a data directory's."""
    name = os.path.basename(path)
    for suffix in RENAMED:
        name = name.removesuffix(suffix)
    if name in CHECKPOINT_COLUMNS:
        return dump_checkpoint(path, name, faults)
    if name in PROPERTY_FILES or name == TOPIC_ID_FILE:
        return dump_properties(path, faults)
    checks = {"sanity_only": options.sanity_only, "verify_only": options.verify_only}
    match os.path.splitext(name)[1]:
        case ".log" | ".checkpoint":
            return dump_segment(path, options.segment, faults)
        case ".index":
            return dump_offset_index(path, **checks, faults=faults)
        case ".timeindex":
            return dump_time_index(path, **checks, faults=faults)
        case ".txnindex":
            return dump_txn_index(path, faults)
        case ".snapshot":
            return dump_producers(path, faults)
    raise ReadError(f"Ignoring unknown file {path}")


def is_dumped(name: str) -> bool:
    """Whether a file of this name in a partition's directory is worth a dump."""
    known = (LOG_SUFFIX, ".index", ".timeindex", ".txnindex", ".snapshot", KRAFT_SNAPSHOT_SUFFIX)
    return name.endswith(known) or name in CHECKPOINT_COLUMNS or name in PROPERTY_FILES or name == TOPIC_ID_FILE
