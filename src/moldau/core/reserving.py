"""Room on the disk for a file, reserved before anything is written there.

This is Linux's `fallocate` with a flag that leaves the file's size alone; Python offers it without the flag, so it is
called in the C library. `ctypes` takes 9 ms to load, and is loaded by the first file that needs it.
"""

from collections.abc import Callable
from functools import cache

_KEEP_SIZE = 1


def reserve(descriptor: int, position: int, size: int) -> bool:
    """Reserve blocks for `size` bytes from `position` on, behind the end of the file. `ftruncate` gives them back.

    False: the disk has no room for them, or this system cannot do that.
    """
    return _fallocate()(descriptor, _KEEP_SIZE, position, size) == 0


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    import ctypes

    try:
        function = ctypes.CDLL(None).fallocate
    except AttributeError:  # not Linux
        return lambda *_: -1
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    return function
