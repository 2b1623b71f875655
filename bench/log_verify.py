"""`moldau log verify` beside `cat`, on files that are not in memory: does the disk decide?

    python -m bench.log_verify              # 10 GB, in batches of 16 KiB
    python -m bench.log_verify --gigabytes 1 --batch-bytes 1000 --directory /mnt/disk

The files are segments of one partition with one batch again and again: only the offset before it differs, which no
checksum covers. Both are run twice, in turns, each time after the kernel was told to forget the files.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from moldau.records.batch import Record, build_batch

GIGABYTE = 10**9
SEGMENT_BYTES = 1 << 30
RECORD_BYTES = 1000
WRITTEN_AT_ONCE = 256
ROUNDS = 2
OFFSET_BYTES = 8


def fill(partition: Path, total_bytes: int, batch_bytes: int) -> list[Path]:
    """Segments of one batch again and again, without indexes; returns them."""
    count = max(1, batch_bytes // RECORD_BYTES)
    records = [Record(number, 1_700_000_000_000, None, b"x" * (batch_bytes // count)) for number in range(count)]
    rest = bytes(build_batch(records))[OFFSET_BYTES:]
    partition.mkdir()
    made: list[Path] = []
    offset = written = 0
    while written < total_bytes:
        made.append(partition / f"{offset:020d}.log")
        with made[-1].open("wb", buffering=0) as file:
            end = min(SEGMENT_BYTES, total_bytes - written)
            while file.tell() < end:
                batches = (at.to_bytes(OFFSET_BYTES, "big") + rest for at in _offsets(offset, count))
                written += file.write(b"".join(batches))
                offset += WRITTEN_AT_ONCE * count
    return made


def _offsets(first: int, count: int) -> range:
    return range(first, first + WRITTEN_AT_ONCE * count, count)


def forget(files: Sequence[Path]) -> None:
    """Tell the kernel that nobody needs these files in memory."""
    os.sync()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Seconds that a command took, and its seconds of CPU."""
    before, begun_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begun_s, cpu_s


def main() -> int:
    """Measure, and print a line for each run."""
    made = argparse.ArgumentParser("python -m bench.log_verify")
    made.add_argument("--gigabytes", type=float, default=10.0)
    made.add_argument("--batch-bytes", type=int, default=16 * 1024)
    made.add_argument("--directory", metavar="DIR", help="where to make the files (default: the temporary directory)")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="log-verify-", dir=options.directory) as directory:
        partition = Path(directory) / "verified-0"
        files = fill(partition, int(options.gigabytes * GIGABYTE), options.batch_bytes)
        size = sum(path.stat().st_size for path in files)
        commands = {
            "moldau log verify": [sys.executable, "-m", "moldau", "log", "verify", str(partition)],
            "cat": ["cat", *map(str, files)],
        }
        for _ in range(ROUNDS):
            for name, command in commands.items():
                forget(files)
                seconds, cpu_s = measured(command)
                rate = size / seconds / 1e6
                sys.stdout.write(
                    f"{name}: {size / 1e9:.1f} GB in {seconds:.1f} s, {rate:.0f} MB/s, CPU {cpu_s:.1f} s\n"
                )
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
