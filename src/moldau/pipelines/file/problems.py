"""Problems of a pipeline file: each has its place, and where possible a suggestion."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moldau.pipelines.secrets import without_secrets


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right; `hint` says how."""

    place: Place
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.words()}"

    def words(self) -> str:
        return without_secrets(self.message + (f" ({self.hint})" if self.hint else ""))


class PipelineError(Exception):
    """Error: the pipeline cannot run as it is written; one line a problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def near(word: str, known: Iterable[str]) -> str:
    """`did you mean 'topic'?`, or nothing."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """The answer of `near`, or all known words if no word is near."""
    names = sorted(known)
    return near(word, names) or (f"there are: {', '.join(names)}" if names else "")
