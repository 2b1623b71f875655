"""Jobs and results of compaction, and how the cleaned files come into the log.

The broker writes a job, a child process (`process`) does it (`cleaner`), the broker takes the result over.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moldau.core.files import Files
from moldau.log.segment import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, file_name

ENTRY_BYTES = 180
"""Bytes that one key takes in the map at most (measured: a dict, a key of 32 bytes, an offset)."""


class Source(NamedTuple):
    """A segment to be cleaned."""

    base_offset: int
    size: int


class LastBatch(NamedTuple):
    """The last batch that the log knows of an active producer; `offset` is -1 if that was a marker."""

    offset: int
    producer_epoch: int


class CleanJob(NamedTuple):
    """One cleaning of one log, with everything that the cleaner needs to know."""

    directory: str
    sources: Sequence[Source]
    later_offsets: Sequence[int]  # where the segments begin that are not cleaned: markers of old transactions are there
    first_dirty_offset: int
    end_offset: int  # below it everything is committed, and old enough
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    keys_max: int
    last_batches: Mapping[int, LastBatch]  # by producer id
    suffix: str  # of the files that are written
    truncations: int  # that the log had seen: after one more the result is of no use


class CleanedGroup(NamedTuple):
    """A new segment and the segments that it replaces."""

    base_offset: int
    size: int
    sources: Sequence[Source]


class CleanResult(NamedTuple):
    """Result of a job. `clean_offset`: below it no key is there twice now."""

    clean_offset: int
    groups: Sequence[CleanedGroup]
    bytes_read: int
    bytes_written: int
    keys: int


# Over the pipe


class CleaningError(Exception):
    """Error: a log could not be cleaned."""


class CorruptLogError(CleaningError):
    """Error: a log can never be cleaned, as something in it makes no sense."""


def encode_job(job: CleanJob, bytes_per_second: float) -> bytes:
    fields = job._asdict() | {"last_batches": list(job.last_batches.items()), "bytes_per_second": bytes_per_second}
    return json.dumps(fields).encode() + b"\n"


def decode_job(line: bytes) -> tuple[CleanJob, float]:
    fields: dict[str, Any] = json.loads(line)
    bytes_per_second = float(fields.pop("bytes_per_second"))
    fields["sources"] = [Source(*source) for source in fields["sources"]]
    fields["last_batches"] = {producer_id: LastBatch(*last) for producer_id, last in fields["last_batches"]}
    return CleanJob(**fields), bytes_per_second


def encode_result(result: CleanResult) -> bytes:
    return json.dumps({"result": result}).encode() + b"\n"


def encode_error(error: Exception) -> bytes:
    return json.dumps({"error": str(error), "is_corrupt": not isinstance(error, OSError)}).encode() + b"\n"


def decode_result(line: bytes) -> CleanResult:
    """The result; raises the failure that the line holds."""
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise (CorruptLogError if answer["is_corrupt"] else CleaningError)(answer["error"])
    clean_offset, groups, *counts = answer["result"]
    made = [CleanedGroup(base, size, [Source(*source) for source in sources]) for base, size, sources in groups]
    return CleanResult(clean_offset, made, *counts)


# Files that are not used


def remove_strays(files: Files, job: CleanJob) -> None:
    """Remove files that earlier cleanings have left. For a thread.

    Recovery believes a swap only below every `.cleaned` file. A swap that was given up, but whose files could not be
    removed, would bring back records that this cleaning removes.
    """
    for name in files.list(job.directory):
        if name.endswith(".log" + SWAP_SUFFIX):
            disown_swap(files, job.directory, int(name.partition(".")[0]))
        elif name.endswith(CLEANED_SUFFIX) and not name.endswith(job.suffix):
            files.remove(f"{job.directory}/{name}")


def discard(files: Files, job: CleanJob) -> None:
    """Remove the files of a cleaning that were not swapped in. For a thread."""
    for source in job.sources:
        disown_swap(files, job.directory, source.base_offset)
        for suffix in SEGMENT_SUFFIXES:
            files.remove(f"{job.directory}/{file_name(source.base_offset, suffix)}{job.suffix}")


def disown_swap(files: Files, directory: str, base_offset: int) -> None:
    """Remove a compacted segment that is not to be swapped in any more.

    Its `.log.swap` becomes a `.cleaned` file first: by this one step recovery gives up the whole swap. If the file were
    removed instead, recovery would put the indexes of the compacted segment in the place of indexes that are still
    needed.
    """
    log, *indexes = [f"{directory}/{file_name(base_offset, suffix)}" for suffix in SEGMENT_SUFFIXES]
    with contextlib.suppress(FileNotFoundError):
        files.rename(log + SWAP_SUFFIX, log + CLEANED_SUFFIX)
    for index in indexes:
        files.remove(index + SWAP_SUFFIX)
    files.remove(log + CLEANED_SUFFIX)
