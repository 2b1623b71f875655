"""Ctrl-C of a command: noted as well as raised, and never in vain.

The first ends what was begun in good order, which may take some seconds. A second does not wait for that, even where
librdkafka does not come back: Python runs no handler then, but the kernel's bytes for one arrive in a pipe.
"""

import os
import signal
import threading
from types import FrameType
from typing import Self

from moldau.cli.failures import EXIT_INTERRUPTED

ENOUGH = 2


class Interrupts:
    """Ctrl-C while a command works. `came` says so where librdkafka made something else of it."""

    def __init__(self) -> None:
        self.came = False
        self._is_ours = False
        self._ends: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if not is_default or threading.current_thread() is not threading.main_thread():
            return self
        self._is_ours = True
        signal.signal(signal.SIGINT, self._note)
        self._ends = os.pipe()
        os.set_blocking(self._ends[1], False)
        signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(self._ends[0],), daemon=True).start()
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the second ends the process
        signal.default_int_handler(number, frame)

    def _watch(self, pipe: int) -> None:
        """End the process at the second Ctrl-C of which the main thread takes no note, as it is in librdkafka."""
        count = 0
        while numbers := os.read(pipe, 64):
            count += numbers.count(signal.SIGINT)
            if count >= ENOUGH and signal.getsignal(signal.SIGINT) == self._note:
                os._exit(EXIT_INTERRUPTED)
        os.close(pipe)

    def __exit__(self, *_: object) -> None:
        if self._ends is not None:
            signal.set_wakeup_fd(-1)
            os.close(self._ends[1])  # the thread reads the end
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
