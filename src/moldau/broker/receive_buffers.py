"""Memory into which the bytes of connections are received.

All connections of a loop read into the same memory, one after the other, and what is complete is served from there. A
connection that has a large part of a frame keeps that memory until the rest is there, and the others get another one:
so a frame lies in one piece without being copied.

The system gives pages to what was written to and no more: a client that sends little holds little, whatever it has
announced.
"""

import mmap

INPUT_BYTES = 1024 * 1024
"""Bytes that are read at a time at most: as much as a busy producer has on the way. Longer frames come in pieces."""

KEPT_MAX = 64
"""Connections that may keep their memory at a time; the frames of others come in pieces."""

SPARES_MAX = 4


class ReceiveBuffers:
    """The memory of one loop."""

    __slots__ = ("_kept", "_spares", "shared")

    def __init__(self) -> None:
        self.shared = _new()
        self._spares: list[memoryview] = []
        self._kept = 0

    @property
    def can_be_kept(self) -> bool:
        return self._kept < KEPT_MAX

    def keep_shared(self) -> memoryview:
        """Give the shared memory to the caller until it gives it back."""
        self._kept += 1
        kept = self.shared
        self.shared = self._spares.pop() if self._spares else _new()
        return kept

    def give_back(self, kept: memoryview) -> None:
        """Take memory back, to be the next that is read into: the processor's caches have it."""
        self._kept -= 1
        if len(self._spares) < SPARES_MAX:
            self._spares.append(self.shared)
        self.shared = kept


def _new() -> memoryview:
    return memoryview(mmap.mmap(-1, INPUT_BYTES))
