"""Entries of a segment's indexes, compared with its batches while these go by.

Law: an entry is right if a reader that follows it misses nothing. That of an offset index points to the start of a
batch, with nothing of its offset or a later one before it; that of a time index has the highest timestamp of all
batches up to the one with its offset.
"""

from itertools import pairwise
from struct import Struct

from moldau.inspection.findings import BUILD_AGAIN, Report
from moldau.inspection.reading import ReadError, content

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
NEVER = 1 << 63
FAULTS_MAX = 3
"""Wrong entries that are told of one file: the next start builds all of it anew."""


class IndexCheck:
    """Entries of one offset index. `wanted` is the position at which the walk over the batches has to stop next."""

    def __init__(self, path: str, base_offset: int, report: Report, *, may_be_padded: bool) -> None:
        self._path = path
        self._report = report
        self._faults = 0
        entries = read_entries(path, OFFSET_ENTRY, base_offset, 0, report, may_be_padded=may_be_padded)
        for before, after in pairwise(entries):
            if after[0] <= before[0] or after[1] <= before[1]:
                self._fault(f"entry {after[0]} -> {after[1]} does not come after {before[0]} -> {before[1]}")
                break
        self._rest = sorted(entries, key=lambda entry: entry[1], reverse=True)
        self.wanted = self._rest[-1][1] if self._rest else NEVER

    def reached(self, position: int, base_offset: int) -> None:
        """Compare the entries up to the batch at `position`, which begins with `base_offset`."""
        while self._rest and self._rest[-1][1] <= position:
            offset, pointed = self._rest.pop()
            if pointed != position:
                self._fault(f"entry {offset} -> {pointed} points into the middle of a batch")
            elif offset < base_offset:
                self._fault(f"entry {offset} -> {pointed} points to a batch that begins with offset {base_offset}")
        self.wanted = self._rest[-1][1] if self._rest else NEVER

    def ended(self, next_offset: int) -> None:
        """Tell entries behind the last batch."""
        for offset, pointed in reversed(self._rest):
            self._fault(f"entry {offset} -> {pointed} points behind the last batch, which ends before {next_offset}")

    def _fault(self, what: str) -> None:
        self._faults += 1
        if self._faults <= FAULTS_MAX:
            self._report.problem(self._path, what, BUILD_AGAIN)


class TimeCheck:
    """Entries of one time index. `wanted` is the offset at which the walk over the batches has to stop next."""

    def __init__(self, path: str, base_offset: int, report: Report, *, may_be_padded: bool) -> None:
        self._path = path
        self._report = report
        self._faults = 0
        entries = read_entries(path, TIME_ENTRY, base_offset, 1, report, may_be_padded=may_be_padded)
        for before, after in pairwise(entries):
            if after[0] < before[0] or after[1] < before[1]:
                self._fault(f"entry {after[0]} -> {after[1]} does not come after {before[0]} -> {before[1]}")
                break
        self._rest = sorted(entries, key=lambda entry: entry[1], reverse=True)
        self.wanted = self._rest[-1][1] if self._rest else NEVER

    def reached(self, last_offset: int, max_timestamp: int) -> None:
        """Compare the entries up to the batch that ends with `last_offset`; no timestamp so far is higher."""
        while self._rest and self._rest[-1][1] <= last_offset:
            timestamp, offset = self._rest.pop()
            if timestamp != max_timestamp:
                self._fault(f"entry {timestamp} -> {offset}, but the highest timestamp up to there is {max_timestamp}")
        self.wanted = self._rest[-1][1] if self._rest else NEVER

    def ended(self, next_offset: int) -> None:
        """Tell entries behind the last batch."""
        for timestamp, offset in reversed(self._rest):
            self._fault(f"entry {timestamp} -> {offset} names an offset behind the end, {next_offset}")

    def _fault(self, what: str) -> None:
        self._faults += 1
        if self._faults <= FAULTS_MAX:
            self._report.problem(self._path, what, BUILD_AGAIN)


def read_entries(
    path: str, layout: Struct, base_offset: int, offset_field: int, report: Report, *, may_be_padded: bool
) -> list[tuple[int, int]]:
    """The entries of an index, with absolute offsets. A file that is missing, or ends inside an entry, is told."""
    try:
        data = content(path)
    except ReadError as error:
        missing = isinstance(error.__cause__, FileNotFoundError)
        report.note(path, "it is missing", "the next start builds it") if missing else report.problem(
            path, str(error), "give the broker's user the right to read it"
        )
        return []
    if len(data) % layout.size:
        report.problem(path, f"{len(data)} bytes are no multiple of {layout.size}", BUILD_AGAIN)
        data = data[: len(data) // layout.size * layout.size]
    # Kafka takes ten megabytes of zeros in advance for an index that grows.
    count = -(-len(data.rstrip(b"\0")) // layout.size)
    padding = len(data) // layout.size - count
    if padding and not may_be_padded:
        report.problem(path, f"its last {padding} entries are zeros", BUILD_AGAIN)
    entries = list(layout.iter_unpack(data[: count * layout.size]))
    if offset_field:
        return [(timestamp, base_offset + relative) for timestamp, relative in entries]
    return [(base_offset + relative, position) for relative, position in entries]
