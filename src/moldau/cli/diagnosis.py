"""Diagnoses: what is wrong, how bad it is, and the command that mends it."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

CRITICAL, WARNING, NOTICE = "critical", "warning", "notice"
SEVERITIES = (CRITICAL, WARNING, NOTICE)
"""Critical: records cannot be written, read or kept. Warning: one more failure, and it is so. Notice: good to know."""
EXAMPLES_MAX = 5


class Diagnosis(NamedTuple):
    """One thing that is wrong."""

    severity: str
    check: str
    """A name for programs, such as `offline-partitions`."""
    what: str
    remedy: str
    """A command, or what to do where no command does it."""
    subjects: Sequence[str] = ()
    """Partitions, brokers, groups or paths that it is about; all of them, for programs."""

    def lines(self) -> Iterable[str]:
        """Lines for people."""
        yield f"{self.severity}: {self.what}"
        yield f"    mend: {self.remedy}"

    def value(self) -> dict[str, Any]:
        return {**self._asdict(), "subjects": list(self.subjects)}


def some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(names) - EXAMPLES_MAX
    return ", ".join(names[:EXAMPLES_MAX]) + (f" and {more} more" if more > 0 else "")


def by_severity(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Diagnoses, the worst first."""
    return sorted(found, key=lambda each: (SEVERITIES.index(each.severity), each.check))
