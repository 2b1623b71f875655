"""Everything in one partition's directory, compared with everything else in it."""

import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from moldau.inspection.dump_small_files import ABORTED, SNAPSHOT_HEAD, SNAPSHOT_ROW, dump_producers
from moldau.inspection.faults import Faults
from moldau.inspection.findings import BUILD_AGAIN, FETCH_AGAIN, STARTS_MEND, Report
from moldau.inspection.index_entries import IndexCheck, TimeCheck
from moldau.inspection.reading import ReadError, content, names_in, opened
from moldau.inspection.segment_check import Progress, SegmentFacts, SegmentWalk
from moldau.log.checkpoints import CheckpointError, parse_lines

SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")
_KNOWN_NAME = re.compile(
    r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)|[0-9]{20}-[0-9]{10}\.checkpoint|leader-epoch-checkpoint"
    r"|partition\.metadata|[0-9a-f]{32}\.not-checkpointed|stray\.properties|truncation-checkpoint|quorum-state"
    r"|.*\.(deleted|tmp)"
)
_UNFINISHED_NAME = re.compile(r"[0-9]{20}\..*(\.swap|\.cleaned[0-9a-z.-]*)")
READABLE = "give the broker's user the right to read it (chown, chmod)"


class Expected(NamedTuple):
    """Knowledge about a partition from outside of its directory; None where nobody says."""

    is_running: bool = False
    """Whether a broker is writing at this moment."""
    is_clean: bool = False
    """Whether the last broker closed its files."""
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None

    @property
    def is_to_be_recovered(self) -> bool:
        """Whether the next start looks at everything that may not have come to the disk."""
        return not self.is_running and not self.is_clean


def check_partition(
    directory: str, expected: Expected, report: Report, buffer: memoryview, progress: Progress
) -> list[SegmentFacts]:
    """Check a partition's directory; returns the facts of its segments."""
    try:
        names = names_in(directory).files
    except ReadError as error:
        report.problem(directory, str(error), READABLE)
        return []
    report.partitions += 1
    _check_names(directory, names, expected, report)
    logs = [name for name in names if SEGMENT_NAME.fullmatch(name)]
    if not logs:
        report.note(directory, "there is no segment in it", STARTS_MEND)
    facts: list[SegmentFacts] = []
    for number, name in enumerate(logs):
        found = _check_segment(directory, name, number == len(logs) - 1, expected, report, buffer, progress)
        if found is not None:
            if facts and found.base_offset < facts[-1].next_offset:
                what = f"it begins before {facts[-1].next_offset}, where the segment before it ends"
                report.problem(f"{directory}/{name}", what, FETCH_AGAIN, offset=found.base_offset)
            facts.append(found)
    if facts:
        _check_rest(directory, names, facts, expected, report)
    return facts


def _check_rest(
    directory: str, names: Sequence[str], facts: Sequence[SegmentFacts], expected: Expected, report: Report
) -> None:
    """Check everything beside the segments."""
    _check_aborted(directory, names, facts, report)
    _check_snapshots(directory, names, facts, expected, report)
    _check_epochs(directory, names, facts, expected, report)
    _check_checkpointed(directory, facts, expected, report)
    _check_topic_id(directory, names, expected, report)
    gaps = sum(each.gaps for each in facts) + sum(
        later.base_offset > earlier.next_offset for earlier, later in pairwise(facts)
    )
    if gaps:
        report.note(directory, f"offsets are missing at {gaps} places", "normal where the topic is compacted")


def _check_names(directory: str, names: Sequence[str], expected: Expected, report: Report) -> None:
    for name in names:
        path = f"{directory}/{name}"
        if _UNFINISHED_NAME.fullmatch(name):
            if not expected.is_running:
                report.note(path, "a compaction did not end", STARTS_MEND)
        elif not _KNOWN_NAME.fullmatch(name):
            report.note(path, "no file of a partition has this name", "it is not read; remove it if nobody needs it")


def _check_segment(
    directory: str,
    name: str,
    is_last: bool,
    expected: Expected,
    report: Report,
    buffer: memoryview,
    progress: Progress,
) -> SegmentFacts | None:
    path, stem = f"{directory}/{name}", f"{directory}/{name.removesuffix('.log')}"
    base_offset = int(name.removesuffix(".log"))
    may_be_padded = is_last and not expected.is_clean
    try:
        # The indexes first: in the directory of a running broker the log is then at least as long as they say.
        index = IndexCheck(f"{stem}.index", base_offset, report, may_be_padded=may_be_padded)
        times = TimeCheck(f"{stem}.timeindex", base_offset, report, may_be_padded=may_be_padded)
        with opened(path) as file:
            walk = SegmentWalk(
                file,
                base_offset,
                report,
                index,
                times,
                is_growing=is_last and expected.is_running,
                may_be_torn=may_be_padded,
                progress=progress,
            )
            found = walk.run(buffer)
    except ReadError as error:
        if not (expected.is_running and isinstance(error.__cause__, FileNotFoundError)):
            report.problem(path, str(error), READABLE)
        return None
    except OSError as error:
        report.problem(path, f"reading failed: {error.strerror}", "look at the disk (dmesg, smartctl); " + FETCH_AGAIN)
        return None
    report.segments += 1
    report.batches += found.batches
    report.bytes += found.size
    if found.whole_bytes < found.size:
        _tell_tail(path, found, is_last, expected, report)
    return found


def _tell_tail(path: str, found: SegmentFacts, is_last: bool, expected: Expected, report: Report) -> None:
    """Tell bytes behind the last whole batch: how bad that is depends on who was writing."""
    left, position = found.size - found.whole_bytes, found.whole_bytes
    if any(each.path == path and each.position == position for each in report.findings):
        return  # told already: no batch begins here
    if found.is_filler and not expected.is_clean:
        return  # room ahead of the appends: the next start cuts it off
    if is_last and expected.is_running:
        report.note(path, f"{left} bytes behind the last whole batch: the broker is writing", position=position)
    elif is_last and not expected.is_clean and found.next_offset >= (expected.recovery_point or 0):
        what = f"a torn tail: {left} bytes behind the last whole batch, offset {found.next_offset - 1}"
        report.note(path, what, "the broker did not stop cleanly; its next start cuts them off", position=position)
    else:
        what = f"the last {left} bytes are no whole batch; offset {found.next_offset} and later ones are missing"
        report.problem(path, what, FETCH_AGAIN, position=position, offset=found.next_offset)


def _check_aborted(directory: str, names: Sequence[str], facts: Sequence[SegmentFacts], report: Report) -> None:
    """Compare the entries of aborted transactions with the markers in the segments."""
    for each in facts:
        name = f"{each.base_offset:020d}.txnindex"
        if name not in names:
            continue
        path, data = f"{directory}/{name}", _content(f"{directory}/{name}", report)
        if len(data) % ABORTED.size:
            report.problem(path, f"{len(data)} bytes are no multiple of {ABORTED.size}", BUILD_AGAIN)
        whole = len(data) // ABORTED.size * ABORTED.size
        for version, producer_id, first, last, _ in ABORTED.iter_unpack(data[:whole]):
            if version != 0 or not first <= last or not each.base_offset <= last < each.next_offset:
                what = f"the entry {first} to {last} of producer {producer_id} does not fit the segment"
                report.problem(path, what, BUILD_AGAIN, offset=last)
            elif each.aborts.get(last, producer_id) != producer_id:
                what = f"offset {last} ends a transaction of producer {each.aborts[last]}, not of {producer_id}"
                report.problem(path, what, BUILD_AGAIN, offset=last)


def _check_snapshots(
    directory: str, names: Sequence[str], facts: Sequence[SegmentFacts], expected: Expected, report: Report
) -> None:
    """Check the snapshots of producers."""
    for name in names:
        if not name.endswith(".snapshot"):
            continue
        path = f"{directory}/{name}"
        faults = Faults()
        try:
            list(dump_producers(path, faults))
            data = content(path)
        except ReadError as error:
            if not expected.is_running:
                report.problem(path, str(error), READABLE)
            continue
        remedy = "stop the broker and remove the file: producers are read from the log again"
        offset = int(name.removesuffix(".snapshot")) if name.removesuffix(".snapshot").isdecimal() else -1
        is_mended = expected.is_to_be_recovered and offset > (expected.recovery_point or 0)
        for error_line in faults.errors:
            what = error_line.removeprefix(f"{path} ")
            if is_mended:
                report.note(path, what, STARTS_MEND)
            else:
                report.problem(path, what, remedy)
        if faults.errors or offset < 0:
            continue
        if offset > facts[-1].next_offset and not expected.is_running:
            what = f"it is of offset {offset}, but the log ends at {facts[-1].next_offset}"
            report.problem(path, what, remedy, offset=offset)
        late = [row for row in SNAPSHOT_ROW.iter_unpack(data[SNAPSHOT_HEAD.size :]) if row[3] >= offset]
        if late:
            report.problem(path, f"producer {late[0][0]} has offset {late[0][3]} in it", remedy, offset=late[0][3])


def _check_epochs(
    directory: str, names: Sequence[str], facts: Sequence[SegmentFacts], expected: Expected, report: Report
) -> None:
    """Compare the epochs of the batches with each other and with the checkpoint."""
    changes = [change for each in facts for change in each.epochs if change[0] >= 0]
    for (earlier, _), (later, offset) in pairwise(changes):
        if later < earlier:
            what = f"leader epoch {later} at offset {offset} comes after epoch {earlier}"
            report.problem(directory, what, FETCH_AGAIN, offset=offset)
            return
    name = "leader-epoch-checkpoint"
    if name not in names:
        return
    path = f"{directory}/{name}"
    remedy = "stop the broker and remove the file: the epochs are read from the batches again"
    try:
        rows = [(int(epoch), int(start)) for epoch, start in parse_lines(content(path))]
    except ReadError as error:
        report.problem(path, str(error), READABLE)
        return
    except (CheckpointError, ValueError) as error:
        report.problem(path, f"it is no checkpoint: {error}", remedy)
        return
    if any(later <= earlier for earlier, later in pairwise(rows)):
        report.problem(path, "its epochs do not rise", remedy)
        return
    believed = facts[-1].next_offset if expected.is_clean else expected.recovery_point or 0
    for epoch, offset in changes:
        number = bisect_right(rows, offset, key=lambda row: row[1])
        known = rows[number - 1][0] if number else None
        if known != epoch and offset < believed:
            what = f"it has epoch {known} at offset {offset}, where the batch has {epoch}"
            report.problem(path, what, remedy, offset=offset)
            return


def _check_checkpointed(directory: str, facts: Sequence[SegmentFacts], expected: Expected, report: Report) -> None:
    """Compare the offsets in the data directory's checkpoints with the log."""
    end = facts[-1].next_offset
    offsets = {
        "recovery point": expected.recovery_point,
        "log start offset": expected.log_start_offset,
        "high watermark": expected.high_watermark,
    }
    for name, offset in offsets.items():
        if offset is not None and offset > end:
            what = f"the {name} in the checkpoint is {offset}, but the log ends at {end}: records are missing"
            report.problem(directory, what, FETCH_AGAIN, offset=end)


def _check_topic_id(directory: str, names: Sequence[str], expected: Expected, report: Report) -> None:
    path = f"{directory}/partition.metadata"
    if "partition.metadata" not in names:
        return
    text = _content(path, report).decode(errors="replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", fields.get("topic_id", "").strip()):
        if expected.is_to_be_recovered:
            report.note(path, "it names no topic id", STARTS_MEND)
            return
        remedy = "stop the broker and remove the file: it is written again with the id that the cluster knows"
        report.problem(path, "it names no topic id", remedy)


def _content(path: str, report: Report) -> bytes:
    try:
        return content(path)
    except ReadError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            report.problem(path, str(error), READABLE)
        return b""


def is_partition(directory: str) -> bool:
    """Whether a directory holds a log."""
    names = names_in(directory).files
    return any(SEGMENT_NAME.fullmatch(name) or name == "partition.metadata" for name in names)


def log_size(directory: str) -> int:
    """Bytes of the segments in a directory, for a progress bar."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat().st_size for entry in entries if SEGMENT_NAME.fullmatch(entry.name))
    except OSError:
        return 0
