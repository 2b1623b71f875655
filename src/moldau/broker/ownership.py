"""Owner of a directory, found out before anything in it is made, renamed or removed.

Law: a data directory is touched only by its owner. It holds no other broker's directory and lies in none, it is not
the directory above the brokers of `serve --brokers N`, and no two of `log.dirs` are one or lie in each other. What
looks wrong is refused with a sentence that says what to do; nothing is mended in passing.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.core.files import DirectoryLock, Files
from moldau.core.properties import parse_properties
from moldau.log.data_directory import LOCK_FILE, META_PROPERTIES_FILE, DirectoryError, holds_a_log, partition_of

CLUSTER_FILE = "cluster.properties"
"""Marks the directory above the data directories of `serve --brokers N`."""
REPLACED_SUFFIX = ".replaced"
SEVERAL = 2

_BROKER_NAME = re.compile(r"broker-[0-9]+")
_RENAMED_NAME = re.compile(r"(?P<name>.+-[0-9]+)\.[0-9a-f]{32}-stray")


class RenamedDirectory(NamedTuple):
    """A broker's data directory that an earlier version took for a partition and renamed."""

    path: str
    original: str


def check_directories(directories: Sequence[str], files: Files, *, names_store: bool) -> None:
    """Raise DirectoryError unless each may be a data directory of one broker; changes nothing.

    `names_store`: the configuration says where the metadata is, as it does for the brokers of `serve --brokers N`.
    """
    _check_apart(directories)
    for path in directories:
        real = os.path.realpath(path)
        if files.is_directory(real):
            _check_inside(path, real, files)
        _check_above(path, real, files, names_store)


def check_cluster_directories(directories: Sequence[str], files: Files) -> None:
    """Raise DirectoryError unless each may be the directory above several brokers'; changes nothing."""
    _check_apart(directories)
    for path in directories:
        real = os.path.realpath(path)
        _refuse_renamed(renamed_in(path, files))
        if files.exists(f"{real}/{META_PROPERTIES_FILE}"):
            raise DirectoryError(_single_broker(path, real, files))
        _check_above(path, real, files, names_store=True)
        if files.exists(f"{os.path.dirname(real)}/{CLUSTER_FILE}"):
            raise DirectoryError(f"{path} is inside {os.path.dirname(real)}, the directory of a cluster")


def lock_cluster_directory(path: str, brokers: int, files: Files) -> DirectoryLock:
    """Take the directory above those of `brokers` brokers, and mark it as what it is."""
    files.make_directory(path, private=True)
    lock = files.lock(f"{path}/{LOCK_FILE}")
    if lock is None:
        raise DirectoryError(f"{path} is in use: its brokers are running already")
    content = f"version=0\nbrokers={brokers}\n".encode()
    mark = f"{path}/{CLUSTER_FILE}"
    if not files.exists(mark) or files.read(mark) != content:
        files.write_atomically(mark, content)
    return lock


def brokers_in(path: str, files: Files) -> int:
    """Number of brokers of the cluster in a directory; 0 if there is no cluster in it."""
    mark, inside = f"{path}/{CLUSTER_FILE}", _brokers_inside(path, files)
    known = sum(1 for name in inside if _BROKER_NAME.fullmatch(name))
    if files.exists(mark):
        count = parse_properties(files.read(mark).decode(errors="replace")).get("brokers", "")
        return max(int(count) if count.isascii() and count.isdecimal() else SEVERAL, known)
    return known


# Directories that an earlier version renamed


def renamed_in(path: str, files: Files) -> list[RenamedDirectory]:
    """The data directories of brokers in `path` that are called a stray partition."""
    matches = ((name, _RENAMED_NAME.fullmatch(name)) for name in _brokers_inside(path, files))
    return [RenamedDirectory(f"{path}/{name}", f"{path}/{match['name']}") for name, match in matches if match]


def put_back(renamed: Sequence[RenamedDirectory], files: Files) -> None:
    """Give directories their names again; all of them or, where one is in the way or in use, none.

    Brokers that went on running have made empty directories of the old names. These get another name.
    """
    made_since = [each.original for each in renamed if files.exists(each.original)]
    locks: list[DirectoryLock] = []
    try:
        locks += [_lock_idle(path, files) for path in (*(each.path for each in renamed), *made_since)]
        for path in made_since:
            _check_replaceable(path, files)
        for parent in sorted({os.path.dirname(each.path) for each in renamed}):
            _withdraw_single_broker(parent, renamed, files)
        for path in made_since:
            files.rename(path, path + REPLACED_SUFFIX)
        for each in renamed:
            files.rename(each.path, each.original)
            files.sync_directory(os.path.dirname(each.original))
    finally:
        for lock in locks:
            lock.release()


def _lock_idle(path: str, files: Files) -> DirectoryLock:
    lock = files.lock(f"{path}/{LOCK_FILE}")
    if lock is None:
        raise DirectoryError(f"{path} is in use by a broker that is running: stop it first")
    return lock


def _check_replaceable(path: str, files: Files) -> None:
    """No record is in it, so that nobody misses it."""
    for name in files.list(path):
        inside = f"{path}/{name}"
        if partition_of(name) and _holds_a_log(inside, files) and _has_records(inside, files):
            raise DirectoryError(
                f"{path} was made since and has records in {name}: move it away to put the old one back"
            )
    if files.exists(path + REPLACED_SUFFIX):
        raise DirectoryError(f"{path} was made since: move it away to put the old one back")


def _has_records(path: str, files: Files) -> bool:
    return any(name.endswith(".log") and files.open(f"{path}/{name}").size() for name in files.list(path))


def _withdraw_single_broker(parent: str, renamed: Iterable[RenamedDirectory], files: Files) -> None:
    """The broker that was started in the directory above by mistake left its own properties there."""
    path = f"{parent}/{META_PROPERTIES_FILE}"
    if not files.exists(path) or not all(_BROKER_NAME.fullmatch(os.path.basename(each.original)) for each in renamed):
        return
    theirs = _brokers_inside(parent, files)
    own = [
        name
        for name in files.list(parent)
        if partition_of(name) and name not in theirs and _holds_a_log(f"{parent}/{name}", files)
    ]
    if own:
        raise DirectoryError(f"{parent} has partitions of its own ({own[0]}): move them and {path} away first")
    files.rename(path, path + REPLACED_SUFFIX)


def _holds_a_log(path: str, files: Files) -> bool:
    return files.is_directory(path) and holds_a_log(files.list(path))


# What is refused


def _single_broker(path: str, real: str, files: Files) -> str:
    if brokers_in(real, files):
        return (
            f"{path} is the directory of a cluster, and a single broker was started in it, too: "
            f"remove {path}/{META_PROPERTIES_FILE} if that was a mistake"
        )
    return (
        f"{path} is the directory of a single broker: start it with `moldau serve --data {path}`, "
        "or choose another one for several"
    )


def _check_apart(directories: Sequence[str]) -> None:
    known: dict[str, str] = {}
    for path in directories:
        if not path:
            raise DirectoryError("log.dirs names a directory without a name: there is a comma too many")
        real = os.path.realpath(path)
        for other_real, other in known.items():
            if real == other_real:
                raise DirectoryError(f"log.dirs has the same directory twice: {other} and {path}")
            for inner, outer, names in ((real, other_real, (path, other)), (other_real, real, (other, path))):
                if inner.startswith(outer.rstrip("/") + "/"):
                    raise DirectoryError(f"log.dirs: {names[0]} is inside {names[1]}")
        known[real] = path


def _check_inside(path: str, real: str, files: Files) -> None:
    """No broker's directory is in it."""
    inside = _brokers_inside(real, files)
    _refuse_renamed(renamed_in(path, files) if inside else [])
    count = brokers_in(real, files)
    if count > 1:
        raise DirectoryError(
            f"{path} is the directory of a cluster of {count} brokers: start them with "
            f"`moldau serve --brokers {count} --data {path}`, or choose another directory for one broker"
        )
    if inside:
        owner = _owner(f"{real}/{inside[0]}", files)
        raise DirectoryError(
            f"{path} holds {inside[0]}, the data directory of broker {owner}: start that with "
            f"`moldau serve --data {path}/{inside[0]}`, or choose another directory"
        )


def _check_above(path: str, real: str, files: Files, names_store: bool) -> None:
    """Raise DirectoryError if it is in a broker's directory, or is one of a cluster's brokers, started by itself."""
    parent = os.path.dirname(real)
    if parent != real and files.exists(f"{parent}/{META_PROPERTIES_FILE}"):
        owner = _owner(parent, files)
        raise DirectoryError(f"{path} is inside {parent}, the data directory of broker {owner}: choose another one")
    if not names_store and _BROKER_NAME.fullmatch(os.path.basename(real)) and files.exists(f"{parent}/{CLUSTER_FILE}"):
        raise DirectoryError(
            f"{path} is of the cluster in {parent}: start it with "
            f"`moldau serve --brokers {brokers_in(parent, files)} --data {parent}`"
        )


def _refuse_renamed(renamed: Sequence[RenamedDirectory]) -> None:
    if renamed:
        raise DirectoryError(
            f"{renamed[0].path} is a broker's data directory that an earlier version renamed: "
            "the same command with --put-back gives it its name again"
        )


def _brokers_inside(path: str, files: Files) -> list[str]:
    """The names in a directory that are data directories."""
    try:
        names = files.list(path)
    except OSError:
        return []  # not there yet, or not to be read: whoever locks it finds out
    return [name for name in names if files.exists(f"{path}/{name}/{META_PROPERTIES_FILE}")]


def _owner(path: str, files: Files) -> str:
    properties = parse_properties(files.read(f"{path}/{META_PROPERTIES_FILE}").decode(errors="replace"))
    return properties.get("broker.id") or properties.get("node.id") or "?"
