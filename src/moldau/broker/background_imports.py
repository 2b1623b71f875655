"""Imports that requests need and a start does not: made after the start, one file at a time.

The law: the loop stands still for one file at most, 6 ms for the longest. In a thread they would hold up the first
answers more: whoever waits for the interpreter waits for 5 ms each time.
"""

import asyncio
import os
from collections.abc import Iterator
from importlib import import_module

ROOMS = ("coordinators", "fastpath", "handlers", os.path.join("broker", "metrics"))
"""Directories that are imported, lower layers first. What requests and scrapes need of other rooms comes with these."""

PAUSE_S = 0.005
"""Time for requests between two files."""

_ROOT = os.path.dirname(os.path.dirname(__file__))


class BackgroundImports:
    """The imports of one broker, from `start` until there is nothing left or it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._names = module_names()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(PAUSE_S, self._import_next)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _import_next(self) -> None:
        name = next(self._names, None)
        if name is not None:
            import_module(name)
            self.start()


def module_names() -> Iterator[str]:
    """Names of the modules in `ROOMS`."""
    for room in ROOMS:
        for directory, _, files in sorted(os.walk(os.path.join(_ROOT, room))):
            package = os.path.relpath(directory, os.path.dirname(_ROOT)).replace(os.sep, ".")
            yield from (f"{package}.{file[:-3]}" for file in sorted(files) if file.endswith(".py"))
