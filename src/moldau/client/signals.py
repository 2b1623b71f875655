"""SIGTERM and SIGINT as a wish to end, not as an end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first signal; after that signals act as before, so that a second Ctrl-C interrupts. Outside of
    the main thread Python lets nobody listen to signals: there it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}

    def put_back() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        put_back()
        stop()

    for each in SIGNALS:
        signal.signal(each, on_signal)
    try:
        yield
    finally:
        put_back()
