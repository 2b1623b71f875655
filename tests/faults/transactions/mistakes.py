"""The `moldau` command with a mistake in it, to see that a schedule of copies finds it.

    python -m tests.faults.transactions.mistakes NAME serve FILE

- wrong-marker: the coordinator sends one marker in twenty for the other result;
- no-sequences: a leader does not look at sequences;
- early-stable-offset: a marker counts before it is replicated.
"""

import random
import sys
from collections.abc import Callable
from typing import Any

from moldau.__main__ import main as moldau
from moldau.coordinators.transactions.markers import Marker
from moldau.log import producers
from moldau.log.log import Log

WRONG_MARKER = 0.05


def _wrong_marker() -> None:
    rightly, chance = Marker.of, random.Random()

    def wrongly(transaction: Any) -> Marker:
        marker = rightly(transaction)
        return marker._replace(committed=marker.committed != (chance.random() < WRONG_MARKER))

    Marker.of = wrongly  # type: ignore[method-assign]


def _no_sequences() -> None:
    for name in ("_written_before", "_duplicate_or_raise"):
        setattr(producers, name, lambda *_: None)


def _early_stable_offset() -> None:
    def below(log: Log, high_watermark: int) -> int:
        return min(log.last_stable_offset, high_watermark)

    setattr(Log, "last_stable_offset_below", below)  # noqa: B010  # mypy refuses an assignment to a method


MISTAKES: dict[str, Callable[[], None]] = {
    "wrong-marker": _wrong_marker,
    "no-sequences": _no_sequences,
    "early-stable-offset": _early_stable_offset,
}


def main() -> int:
    name, *arguments = sys.argv[1:]
    MISTAKES[name]()
    return moldau(arguments)


if __name__ == "__main__":
    sys.exit(main())
