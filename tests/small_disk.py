"""A real file system of a few megabytes, which a test can fill.

It is a tmpfs in a mount namespace of its own, so nobody has to be root and nothing is left behind. Where not even that
is allowed the test fails: a full disk cannot be shown without one.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

_SCRIPT = 'mount -t tmpfs -o size="$1" small "$2" && echo mounted && exec cat'


class SmallDisk(NamedTuple):
    """Processes that are run `under` it have the file system at `inside`, others find it at `outside`."""

    inside: Path
    outside: Path
    under: Sequence[str]


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[SmallDisk]:
    """A file system at `place`, which must not be there yet; `size` as mount takes it: `40m`."""
    place.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", _SCRIPT, "sh", size, str(place)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if holder.stdout is None or holder.stderr is None or holder.stdout.readline() != b"mounted\n":
            complaint = holder.stderr.read().decode() if holder.stderr is not None else ""
            pytest.fail(f"this machine does not let a test mount a tmpfs: {complaint}")
        enter = ["nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials", "--mount"]
        yield SmallDisk(place, Path(f"/proc/{holder.pid}/root{place}"), enter)
    finally:
        holder.kill()
        holder.communicate()
