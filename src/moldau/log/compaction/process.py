"""Compaction in a process of its own: `python -m moldau.log.compaction.process PARENT_PID`.

A line of JSON in is a job, a line out is its result. The broker's loop and its GIL stay free, and the memory for the
keys is given back when the process ends: at the end of its input, or when its parent has ended.
"""

import os
import sys
import time

from moldau.core.files import Files
from moldau.core.real_files import RealFiles
from moldau.log.compaction.cleaner import clean
from moldau.log.compaction.job import CleanedGroup, CleanJob, decode_job, encode_error, encode_result
from moldau.log.segment import file_name
from moldau.protocol.errors import ApiError

NICENESS = 10
"""Niceness of the process: producers and consumers go first."""
PACE_BYTES = 1 << 20
"""Bytes after which the process looks at the clock and at its parent again."""


class _Pace:
    """Pace that holds the work to a rate, and ends it when nobody waits for the result any more."""

    def __init__(self, bytes_per_second: float, parent: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._parent = parent
        self._started = time.monotonic()
        self._bytes = 0
        self._unpaced = PACE_BYTES  # look at the parent at once

    def __call__(self, count: int) -> None:
        self._unpaced += count
        if self._unpaced < PACE_BYTES:
            return
        self._bytes += self._unpaced
        self._unpaced = 0
        if os.getppid() != self._parent:
            raise SystemExit("the broker is gone")
        ahead_s = self._bytes / self._bytes_per_second - (time.monotonic() - self._started)
        if ahead_s > 0:
            time.sleep(ahead_s)


def _run(files: Files, line: bytes, parent: int) -> bytes:
    try:
        job, bytes_per_second = decode_job(line)
        result = clean(files, job, _Pace(bytes_per_second, parent))
        for group in result.groups:
            _keep_modified_time(job, group)
        return encode_result(result)
    except (ApiError, OSError, ValueError, ArithmeticError) as error:
        return encode_error(error)


def _keep_modified_time(job: CleanJob, group: CleanedGroup) -> None:
    """Give the new file the time of the old ones: retention goes by it where records have no timestamp."""
    last = os.stat(f"{job.directory}/{file_name(group.sources[-1].base_offset, '.log')}")
    new = f"{job.directory}/{file_name(group.base_offset, '.log')}{job.suffix}"
    os.utime(new, ns=(last.st_atime_ns, last.st_mtime_ns))


def main() -> None:
    parent = int(sys.argv[1])
    os.nice(NICENESS)
    files = RealFiles()
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(_run(files, line, parent))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
