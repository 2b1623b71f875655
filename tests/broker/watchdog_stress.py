"""Looks at a busy thread as often as it can, while there is garbage whose finalizers let other threads run.

python -m tests.broker.watchdog_stress SECONDS
"""

import gc
import os
import sys
import threading
import time

from moldau.broker import watchdog

DEPTH = 5
DICTS_AT_HAND = 300
"""More than the interpreter keeps for the next ones: then a new one may begin a collection."""


class Litter:
    """Only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        os.close(os.dup(1))  # both let other threads run


def recurse(context: object, depth: int) -> int:
    variables = [context, depth]
    return recurse(context, depth - 1) if depth else len(variables)


def main() -> None:
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            recurse(None, DEPTH)

    recurse.__globals__["__name__"] = "moldau.stress"  # calls of ours alone are looked at
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=work)
    thread.start()
    gc.set_threshold(1)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        gc.disable()
        litter = [Litter() for _ in range(3)]
        litter.clear()
        dicts: list[dict[str, int]] = [{} for _ in range(DICTS_AT_HAND)]
        gc.enable()
        with watchdog.stack_of(thread.ident or 0) as frame:
            if frame is not None:
                watchdog.cause_of(frame, None, str)
        dicts.clear()
    stopping.set()
    thread.join()


if __name__ == "__main__":
    main()
