"""Syncs that the kernel makes beside the process: Linux AIO with an eventfd, called through ctypes.

A sync is handed to the kernel without waiting (`io_submit` of IOCB_CMD_FDSYNC, Linux 4.18), runs in a thread of the
kernel's, and its result is read when the eventfd says so. No thread of ours wakes up for it, so none asks for the
interpreter. ADR 25 says what that saves, and why it is not io_uring.

The law: what `begin` has taken is told exactly once, with the error of the sync, and never at once. What it does not
take (the kernel's queue is full, or knows no such operation) has not begun.
"""

import asyncio
import ctypes
import errno
import logging
import os
import platform
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from struct import Struct

from moldau.core.files import OnResult

log = logging.getLogger(__name__)

UNDER_WAY_MAX = 128
"""Syncs under way in one data directory; more of them go to its threads."""

_FDSYNC, _USE_EVENTFD = 3, 1
_iocb = Struct("=QIIHhIQQqQII")  # data, key, flags, operation, priority, descriptor, four that are 0, flags, eventfd
_event = Struct("=QQqq")  # data, the request's address, result, another result
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit: the C library has no functions for them."""


class KernelSyncs:
    """The syncs of one data directory. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError where the system does not allow it."""
        numbers = _NUMBERS.get(platform.machine()) if platform.system() == "Linux" else None
        if numbers is None:
            raise OSError(errno.ENOSYS, "there is no asynchronous fdatasync on this system")
        setup, self._destroy, self._get_events, self._submit = numbers
        # Not CDLL: none of these calls waits, and to let go of the interpreter costs more than they do.
        self._call: Callable[..., int] = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        self._checked(self._call(setup, UNDER_WAY_MAX, ctypes.byref(context)))
        self._context = ctypes.c_ulong(context.value)
        self._loop = loop
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._under_way: dict[int, OnResult] = {}
        self._last = 0
        self._request = ctypes.create_string_buffer(_iocb.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_event.size * UNDER_WAY_MAX)
        self._no_time = ctypes.create_string_buffer(16)
        loop.add_reader(self._eventfd, self._take_results)

    def begin(self, descriptor: int, then: OnResult) -> bool:
        """Sync what was written to a file so far, and call `then` with the error's number, or 0. False: not now."""
        if len(self._under_way) >= UNDER_WAY_MAX:
            return False
        self._last += 1
        _iocb.pack_into(
            self._request, 0, self._last, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _USE_EVENTFD, self._eventfd
        )
        if self._call(self._submit, self._context, 1, self._requests) != 1:
            return False
        self._under_way[self._last] = then
        return True

    def _take_results(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        count = self._checked(
            self._call(self._get_events, self._context, 0, UNDER_WAY_MAX, self._events, self._no_time)
        )
        for each in range(count):
            number, _, result, _ = _event.unpack_from(self._events, each * _event.size)
            try:
                self._under_way.pop(number)(-result if result < 0 else 0)
            except Exception:
                log.exception("one who waited for a sync has failed")

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def close(self) -> None:
        """Wait for what is under way. Nobody is told of it any more."""
        self._loop.remove_reader(self._eventfd)
        self._call(self._destroy, self._context)
        os.close(self._eventfd)
        self._under_way.clear()


def kernel_syncs(
    loop: asyncio.AbstractEventLoop, name: str, paths: Iterable[str], to_release: AsyncExitStack
) -> dict[str, KernelSyncs]:
    """The engine of each data directory where `name` (`log.flush.engine`) asks for one; none where threads do it.

    `auto` takes what the system allows; `aio` raises OSError if it does not.
    """
    engines: dict[str, KernelSyncs] = {}
    if name != "thread":
        try:
            for path in paths:
                engines[path] = KernelSyncs(loop)
                to_release.callback(engines[path].close)
        except OSError as error:
            if name != "auto":
                raise
            log.warning("the system allows no asynchronous syncs: %s", error)
            engines.clear()
    log.info("logs are synced by %s", "aio" if engines else "threads")
    return engines
