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
_stopping: dict[str, threading.Event] = {}
"""The runs that are to stop, by the pipeline's name."""


class Away(PipelineError):
    """Error: the store does not answer, or not now; the same may work later."""


def give_up(pipeline: str) -> None:
    """End the waiting of a pipeline: its run is to stop."""
    _stopping[pipeline].set()


@contextmanager
def told(say: Callable[[str], None], pipeline: str) -> Iterator[None]:
    """Tell of each pause of a pipeline inside the block, which is its run."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if _pipeline(str(record.args[0])) == pipeline:  # type: ignore[index]  # a query, see below
                say(record.getMessage())

    handler = Handler()
    _stopping[pipeline] = threading.Event()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        _stopping.pop(pipeline).set()  # nobody waits for a run that is over


def _pipeline(query: str) -> str:
    """The pipeline of a query, whose name begins with the pipeline's: both may have dots."""
    return max((name for name in _stopping if query.startswith(f"{name}.")), key=len, default="")


def patiently(query: str, write: Callable[[], T], pause: Callable[[float], object] | None = None) -> T:
    """The result of writing, tried again while the store is away. Raises Away when that takes too long."""
    stopping = _stopping.get(_pipeline(query)) or threading.Event()
    pause = pause or stopping.wait
    waited, seconds = 0.0, PAUSE_S
    while True:
        try:
            return write()
        except Away as error:
            if waited >= WAIT_MAX_S or stopping.is_set():
                raise
            words = without_secrets("; ".join(problem.message for problem in error.problems))
            logger.warning("%s: waits %.0f s and tries again: %s", query, seconds, words)
        pause(seconds)
        waited, seconds = waited + seconds, min(PAUSE_MAX_S, seconds * 2)
