"""What an operator is told of a broker that does not start."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from moldau.broker.start_failures import reason
from moldau.cluster.store import StoreUnavailable

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def test_the_directories_on_a_full_disk_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def statvfs(path: str) -> SimpleNamespace:
        if path == "/gone":
            raise FileNotFoundError
        return SimpleNamespace(f_bavail=0 if path == "/full" else 1000, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    told = reason(NO_SPACE, ["/roomy", "/full", "/gone", "/full"])
    full = "the disk of /full is full ([Errno 28] No space left on device): free some of it, and start again"
    assert told == full


def test_without_a_full_disk_quotas_and_inodes_are_to_be_looked_at(tmp_path: Path) -> None:
    no_quota = OSError(errno.EDQUOT, "Disk quota exceeded", "/data/x")
    assert "no room for /data/x" in reason(no_quota, [str(tmp_path)])
    told = reason(NO_SPACE, [str(tmp_path), "/other"])
    assert f"no room for {tmp_path} or /other" in told
    assert "quotas and inodes" in told


def test_other_errors_are_told_as_they_are() -> None:
    assert (
        reason(PermissionError(errno.EACCES, "Permission denied", "/data"), [])
        == "[Errno 13] Permission denied: '/data'"
    )
    assert "the metadata store does not answer" in reason(StoreUnavailable("x"), [])
