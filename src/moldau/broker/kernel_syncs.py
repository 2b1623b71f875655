"""Syncs that the kernel makes beside the process: Linux AIO with an eventfd, called through ctypes.

All syncs of a turn are handed to the kernel in one call, without waiting (`io_submit` of IOCB_CMD_FDSYNC, Linux 4.18);
they run in threads of the kernel's, and their results are read when the eventfd says so. No thread of ours wakes up for
them, so none asks for the interpreter. ADR 25 says what that saves, and why it is not io_uring.

The law: what `begin` has taken is told exactly once, with the error of the sync, and never at once. What it does not
take (too many are under way) has not begun.
"""

import asyncio
import ctypes
import errno
import logging
import os
import platform
from collections.abc import Callable
from struct import Struct

from moldau.core.files import HasDescriptor, OnResult

log = logging.getLogger(__name__)

UNDER_WAY_MAX = 128
"""Syncs under way in one data directory; more of them go to its threads."""

SUBMIT_AGAIN_S = 0.001
"""Time after which what the kernel had no memory for is handed to it again."""

_FDSYNC, _USE_EVENTFD = 3, 1
_iocb = Struct("=QIIHhIQQqQII")  # data, key, flags, operation, priority, descriptor, four that are 0, flags, eventfd
_event = Struct("=QQqq")  # data, the request's address, result, another result
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit: the C library has no functions for them."""


class KernelSyncs:
    """The syncs of one data directory. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError where the system does not allow it, or knows no such sync."""
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
        self._under_way: dict[int, tuple[OnResult, HasDescriptor]] = {}  # which keeps the descriptors open
        self._last = 0
        self._begun: list[int] = []  # and not submitted yet; their requests, in this order, are in:
        self._requests = ctypes.create_string_buffer(_iocb.size * UNDER_WAY_MAX)
        first = ctypes.addressof(self._requests)
        self._addresses = (ctypes.c_void_p * UNDER_WAY_MAX)(*range(first, first + len(self._requests), _iocb.size))
        self._events = ctypes.create_string_buffer(_event.size * UNDER_WAY_MAX)
        self._no_time = ctypes.create_string_buffer(16)
        loop.add_reader(self._eventfd, self._take_results)
        try:
            self._try()
        except OSError:
            self.close()
            raise

    def _try(self) -> None:
        """Sync a file in memory: a kernel that does not know the operation says so when it is asked, and not before."""
        descriptor = os.memfd_create("moldau-try-sync")
        _iocb.pack_into(self._requests, 0, 0, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, 0, 0)
        try:
            self._checked(self._submit_from(0, 1))
            self._checked(self._call(self._get_events, self._context, 1, 1, self._events, None))
        finally:
            os.close(descriptor)
        _, _, result, _ = _event.unpack_from(self._events)
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def begin(self, file: HasDescriptor, then: OnResult) -> bool:
        """Sync what was written to a file before `submit` is called; `then` is told the error's number, or 0.

        False: not now, as too many are under way.
        """
        under_way, begun = self._under_way, self._begun
        if len(under_way) >= UNDER_WAY_MAX:
            return False
        self._last = number = self._last + 1
        position, descriptor = len(begun) * _iocb.size, file.fileno()
        _iocb.pack_into(
            self._requests, position, number, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _USE_EVENTFD, self._eventfd
        )
        under_way[number] = then, file
        begun.append(number)
        return True

    def submit(self) -> None:
        """Hand over what was begun. What the kernel refuses has failed; what it has no memory for now has to wait."""
        begun, self._begun = self._begun, []
        submitted = 0
        while submitted < len(begun):
            taken = self._submit_from(submitted, len(begun) - submitted)
            if taken > 0:
                submitted += taken
            elif (error := ctypes.get_errno()) == errno.EAGAIN:
                self._keep_from(submitted, begun)
                return
            else:
                self._loop.call_soon(self._tell, begun[submitted], error)
                submitted += 1

    def _submit_from(self, position: int, count: int) -> int:
        addresses = ctypes.byref(self._addresses, position * ctypes.sizeof(ctypes.c_void_p))
        return self._call(self._submit, self._context, count, addresses)

    def _keep_from(self, position: int, begun: list[int]) -> None:
        """Submit the rest of what was begun later."""
        self._begun = begun[position:]
        rest = ctypes.byref(self._requests, position * _iocb.size)
        ctypes.memmove(self._requests, rest, len(self._begun) * _iocb.size)
        self._loop.call_later(SUBMIT_AGAIN_S, self.submit)

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
            self._tell(number, -result if result < 0 else 0)

    def _tell(self, number: int, error: int) -> None:
        if number not in self._under_way:
            return  # this was closed meanwhile
        then, _ = self._under_way.pop(number)
        try:
            then(error)
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
        self._begun.clear()
