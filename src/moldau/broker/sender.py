"""Chunks of answers on their way to one socket, in order.

Bytes go through the transport, all that is ready in one `writelines`. File regions go from the page cache to the
socket with `sendfile`, on a duplicate of the descriptor: uvloop has no `loop.sendfile`, and it refuses `add_writer`
on a descriptor that a transport owns. The transport's buffer limit is zero, so "not paused" means "all handed to
the kernel", which is when `sendfile` may write behind it.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from moldau.core.files import FileRegion

SENDFILE_BYTES_MIN = 131072
"""Below this a `pread` and a share in one `writelines` cost less than `sendmsg` and `sendfile` (measured: 0.98 against
1.28 CPU seconds per GB with six regions of 64 KiB)."""

READ_AHEAD_BYTES_MAX = 262144
"""Bytes that are read into memory before the socket has taken them: a client that does not read costs no more."""

COLD_READ_STEP_BYTES = 1 << 20

Chunk = bytes | memoryview | FileRegion
Run = list[bytes | bytearray | memoryview]


class Sender:
    """Sends chunks; calls `on_drained` each time nothing is left after it had to wait."""

    __slots__ = (
        "_cold_reads",
        "_loop",
        "_on_drained",
        "_queue",
        "_socket",
        "_transport",
        "_transport_full",
        "_waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        cold_reads: Executor,
        on_drained: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._cold_reads = cold_reads
        self._on_drained = on_drained
        self._queue: deque[Chunk] = deque()
        self._socket: socket.socket | None = None
        self._transport_full = False
        self._waiting = False
        transport.set_write_buffer_limits(high=0)

    @property
    def idle(self) -> bool:
        """Everything was handed to the kernel."""
        return not self._queue and not self._transport_full and not self._waiting

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send now as much as the socket takes, the rest when it takes more."""
        if len(chunks) == 1 and type(chunks[0]) is bytes and self.idle:
            self._transport.write(chunks[0])
            return
        self._queue.extend(chunks)
        if not self._transport_full and not self._waiting:
            self._drain()

    def transport_full(self) -> None:
        """The transport holds bytes that the socket did not take (`pause_writing`)."""
        self._transport_full = True

    def transport_empty(self) -> None:
        """The transport is empty again (`resume_writing`)."""
        self._transport_full = False
        self._resume()

    def close(self) -> None:
        """The connection is gone: drop what was not sent."""
        self._queue.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _resume(self) -> None:
        if not self._waiting:
            self._drain()
            if self.idle:
                self._on_drained()

    def _drain(self) -> None:
        while self._queue and not self._transport_full and not self._transport.is_closing():
            run, region = self._take_bytes()
            if region is None:
                self._transport.writelines(run)
            elif _is_worth_sendfile(region) and is_cached(region):
                if not (self._send_before_region(run) and self._send_region(region)):
                    return
            else:
                self._transport.writelines(run)
                self._warm(region)
                return

    def _take_bytes(self) -> tuple[Run, FileRegion | None]:
        """The bytes up to a region for `sendfile` or for the disk, and that region; or as many as may be read ahead."""
        queue = self._queue
        run: Run = []
        read_bytes = 0
        while queue and read_bytes < READ_AHEAD_BYTES_MAX:
            chunk = queue[0]
            if isinstance(chunk, FileRegion):
                read = None if _is_worth_sendfile(chunk) else read_if_cached(chunk)
                if read is None:
                    return run, chunk
                read_bytes += len(read)
                run.append(read)
            else:
                run.append(chunk)
            queue.popleft()
        return run, None

    def _send_before_region(self, run: Run) -> bool:
        """Send `run` so that the kernel joins it with what follows; False if the socket is full."""
        try:
            sent = self._own_socket().sendmsg(run, (), socket.MSG_MORE) if run else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._transport.abort()
            return False
        if sent == sum(map(len, run)):
            return True
        self._queue.appendleft(b"".join(run)[sent:])
        self._wait_for_room()
        return False

    def _send_region(self, region: FileRegion) -> bool:
        """Send the region at the head of the queue; False if the socket is full."""
        try:
            sent = os.sendfile(self._own_socket().fileno(), region.file.fileno(), region.position, region.size)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._transport.abort()
            return False
        else:
            if not sent:  # the file ends before the region does
                self._transport.abort()
                return False
        if sent == region.size:
            self._queue.popleft()
            return True
        self._queue[0] = FileRegion(region.file, region.position + sent, region.size - sent)
        self._wait_for_room()
        return False

    def _own_socket(self) -> socket.socket:
        if self._socket is None:
            shared = self._transport.get_extra_info("socket")
            self._socket = socket.socket(fileno=os.dup(shared.fileno()))
        return self._socket

    def _wait_for_room(self) -> None:
        self._waiting = True
        self._loop.add_writer(self._own_socket().fileno(), self._room)

    def _room(self) -> None:
        self._loop.remove_writer(self._own_socket().fileno())
        self._waiting = False
        self._resume()

    def _warm(self, region: FileRegion) -> None:
        """Let a thread wait for the disk; the loop goes on with other connections."""
        self._waiting = True
        done = self._loop.run_in_executor(self._cold_reads, _from_disk, region)
        done.add_done_callback(self._warmed)

    def _warmed(self, done: "asyncio.Future[Chunk]") -> None:
        self._waiting = False
        if done.cancelled() or done.exception() is not None:
            self._transport.abort()
        elif self._queue:
            self._queue[0] = done.result()
            self._resume()


def _is_worth_sendfile(region: FileRegion) -> bool:
    return region.size >= SENDFILE_BYTES_MIN and region.file.fileno() >= 0


def is_cached(region: FileRegion) -> bool:
    """Whether the page cache has the first and the last byte; True where nobody can say."""
    if region.file.fileno() < 0:
        return True
    return _byte_is_cached(region, region.position) and _byte_is_cached(region, region.position + region.size - 1)


def _byte_is_cached(region: FileRegion, position: int) -> bool:
    try:
        os.preadv(region.file.fileno(), (bytearray(1),), position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_if_cached(region: FileRegion) -> bytes | bytearray | None:
    """All of a region in one call; None: some of it is not in the page cache."""
    descriptor = region.file.fileno()
    if descriptor < 0:
        return region.read()
    read = bytearray(region.size)
    try:
        size = os.preadv(descriptor, (read,), region.position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError:  # a file system that cannot tell
        return region.read()
    return read if size == region.size else None


def _from_disk(region: FileRegion) -> Chunk:
    """The region once it is in the page cache, or its bytes if there are not many (runs in a thread)."""
    if _is_worth_sendfile(region):
        read_through(region)
        return region
    read = region.read()
    if len(read) != region.size:
        raise EOFError(f"the file ends before the {region.size} bytes at {region.position} do")
    return read


def read_through(region: FileRegion) -> None:
    """Bring a region into the page cache."""
    scratch = bytearray(min(COLD_READ_STEP_BYTES, region.size))
    end = region.position + region.size
    for position in range(region.position, end, len(scratch)):
        os.preadv(region.file.fileno(), [memoryview(scratch)[: end - position]], position)
