"""Patience with a store that is away: a batch is tried again in growing pauses, each with a line that says so.

A batch may be tried again at any time: whether it is there already is known by its number, also where a connection
broke in the middle of a commit. A run that is to stop does not wait.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from moldau.pipelines.file.problems import PipelineError
from moldau.pipelines.secrets import without_secrets

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
WAIT_MAX_S = 300.0
"""Seconds that a store may be away before the run ends."""

T = TypeVar("T")
logger = logging.getLogger(__name__)
_stopping = threading.Event()


class Away(PipelineError):
    """Error: the store does not answer, or not now; the same may work later."""


def give_up() -> None:
    """End all waiting in this process: the run is to stop."""
    _stopping.set()


@contextmanager
def told(say: Callable[[str], None]) -> Iterator[None]:
    """Tell of each pause inside the block, which is a run."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    handler = Handler()
    _stopping.clear()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def patiently(query: str, write: Callable[[], T], pause: Callable[[float], object] = _stopping.wait) -> T:
    """The result of writing, tried again while the store is away. Raises Away when that takes too long."""
    waited, seconds = 0.0, PAUSE_S
    while True:
        try:
            return write()
        except Away as error:
            if waited >= WAIT_MAX_S or _stopping.is_set():
                raise
            words = without_secrets("; ".join(problem.message for problem in error.problems))
            logger.warning("%s: waits %.0f s and tries again: %s", query, seconds, words)
        pause(seconds)
        waited, seconds = waited + seconds, min(PAUSE_MAX_S, seconds * 2)
