"""Outcome of a decision: records to append, and a callback for the moment at which they are committed.

A state machine's method validates and returns this; it changes durable state only in `replay(record)`, which the
runtime calls for each record, live and at restart alike.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from moldau.coordinators.promise import Promise
from moldau.coordinators.records import CoordinatorRecord

T = TypeVar("T")


class Outcome(NamedTuple):
    """`on_committed` gets 0 when the records are durable (at once if there are none), else the error's code."""

    records: Sequence[CoordinatorRecord] = ()
    on_committed: Callable[[int], None] | None = None
    adopt: Callable[[], None] | None = None
    """Comes to the same as replaying the records, where the decision has replayed them on a copy already."""

    def committed(self, error_code: int) -> None:
        """Tell the decision what became of its records."""
        if self.on_committed is not None:
            self.on_committed(error_code)


NOTHING = Outcome()

Decision = tuple[Outcome, Promise[T]]
"""Outcome of a request, and the promise of its answer. If the append failed and `on_committed` left the promise open,
the request fails with that error (which `refused` of `services.groups.answer` is given)."""


def answered(value: T, records: Sequence[CoordinatorRecord] = ()) -> Decision[T]:
    """Answer `value` once the records are committed; the plain case."""
    promise: Promise[T] = Promise()

    def on_committed(error_code: int) -> None:
        if error_code == 0:
            promise.complete(value)

    return Outcome(records, on_committed), promise
