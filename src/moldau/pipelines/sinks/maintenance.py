"""Maintenance of lake tables: small files are merged and old versions removed, by the libraries' own means.

A batch every second makes a file every second. So after every few batches the sink merges what is small, in a commit of
its own, behind that of the batch: the rows and the word that the batch is there are not touched, and a run that is
killed in between leaves a table with more files, and nothing else. A reader goes on with the version that it has
begun with: files that a merge replaced stay for as long as `history` says.

Merging to the final size each time would write large files again and again for the sake of a few rows. So files grow to
SMALL_BYTES first, and every LARGE_EVERY turns to LARGE_BYTES.
"""

import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moldau.pipelines.file.options import Option, text, whole
from moldau.pipelines.sinks import patience

BATCHES = 50
SMALL_BYTES, LARGE_BYTES = 16 << 20, 128 << 20
LARGE_EVERY = 16

logger = logging.getLogger(patience.__name__)


def history(value: Any) -> timedelta:
    """A time such as `7 days`."""
    found = re.fullmatch(r"\s*(\d+)\s*(minute|hour|day)s?\s*", text(value))
    if found is None or int(found[1]) == 0:
        raise ValueError("a time such as `12 hours` or `7 days`")
    return timedelta(**{f"{found[2]}s": int(found[1])})


COMPACT = Option(
    "compact", whole, "merge small files, and remove old versions, after so many batches; 0: never", default=BATCHES
)
HISTORY = Option("history", history, "how long old versions can be read, such as `7 days`; default: as the table says")


def target_bytes(every: int, number: int) -> int:
    """The size up to which files are merged after this batch; 0: not now."""
    if not every or (number + 1) % every:
        return 0
    return LARGE_BYTES if (number + 1) // every % LARGE_EVERY == 0 else SMALL_BYTES


def try_to(what: str, query: str, work: Callable[[], object], errors: tuple[type[Exception], ...]) -> None:
    """Do it, or say that it did not work: the rows are in the table, and the next turn tries again."""
    try:
        work()
    except errors as error:
        logger.warning("%s: did not %s now: %s", query, what, " ".join(str(error).split()))
