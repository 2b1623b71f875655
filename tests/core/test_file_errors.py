"""Which errors of a file operation pass, and which are the end of a disk."""

import errno
import os
from pathlib import Path

import pytest

from moldau.core.file_errors import SyncError, is_full, is_short, passes, syncing
from moldau.core.real_files import RealFiles


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_passes(number: int) -> None:
    error = OSError(number, "x")
    assert (is_full(error), is_short(error), passes(error)) == (True, False, True)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN])
def test_a_lack_of_descriptors_or_memory_passes(number: int) -> None:
    error = OSError(number, "x")
    assert (is_full(error), is_short(error), passes(error)) == (False, True, True)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOENT, errno.EACCES, errno.ENODEV, None])
def test_everything_else_is_the_failure_of_the_disk(number: int | None) -> None:
    assert not passes(OSError(number, "x") if number is not None else OSError("no number"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_a_failed_sync_never_passes(number: int) -> None:
    with pytest.raises(SyncError) as caught, syncing():
        raise OSError(number, "x", "a file")
    assert caught.value.errno == number
    assert not passes(caught.value)


def test_a_real_sync_that_fails_is_told_from_an_opening_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    files = RealFiles()
    file = files.open(f"{tmp_path}/f", create=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(SyncError):
            file.sync()
        with pytest.raises(SyncError):
            files.sync_directory(str(tmp_path))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="no space") as caught:
        files.sync_directory(str(tmp_path))
    assert passes(caught.value)


def test_a_checkpoint_that_is_refused_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new file is thrown away, so an error of that file's sync is not the end of anything."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    files = RealFiles()
    files.write_atomically(f"{tmp_path}/checkpoint", b"old")
    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(OSError, match="no space") as caught:
        files.write_atomically(f"{tmp_path}/checkpoint", b"new")
    assert passes(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert files.read(f"{tmp_path}/checkpoint") == b"old"
