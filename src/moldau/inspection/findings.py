"""Findings of a look at data: what is wrong, where, and what mends it."""

from typing import Any, NamedTuple

FINDINGS_MAX = 1000
"""Findings that are kept of one look: a broken disk is not a million lines."""

FETCH_AGAIN = (
    "stop the broker, move the partition's directory away and start it: it copies the partition from another replica "
    "(without one, what is told here is lost)"
)
BUILD_AGAIN = "stop the broker and remove the file: the next start builds it anew from the log"
STARTS_MEND = "start the broker: it mends this by itself"
NOTHING_TO_DO = "nothing to do"


class Finding(NamedTuple):
    """A fact about a file. A problem needs somebody's hand; all else is good to know."""

    path: str
    what: str
    remedy: str
    is_problem: bool = True
    position: int | None = None
    offset: int | None = None

    def line(self) -> str:
        """The finding in one line."""
        place = "" if self.position is None else f" at {self.position}"
        return f"{'problem' if self.is_problem else 'note'}: {self.path}{place}: {self.what}; {self.remedy}"

    def value(self) -> dict[str, Any]:
        """The finding for programs."""
        return {
            "path": self.path,
            "position": self.position,
            "offset": self.offset,
            "what": self.what,
            "remedy": self.remedy,
        }


class Report:
    """Findings and counts of one look."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.problems = 0
        self.partitions = 0
        self.segments = 0
        self.batches = 0
        self.bytes = 0

    def add(self, finding: Finding) -> None:
        self.problems += finding.is_problem
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def problem(
        self, path: str, what: str, remedy: str, *, position: int | None = None, offset: int | None = None
    ) -> None:
        self.add(Finding(path, what, remedy, True, position, offset))

    def note(self, path: str, what: str, remedy: str = NOTHING_TO_DO, *, position: int | None = None) -> None:
        self.add(Finding(path, what, remedy, False, position))
