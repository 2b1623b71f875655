"""Checks of a data directory from outside: owner, rights, room, marks, strays. `moldau log verify` reads the logs."""

import os
import resource
import stat
from collections.abc import Iterator

from moldau.cli.diagnosis import CRITICAL, NOTICE, WARNING, Diagnosis, some
from moldau.cli.doctor_cluster import DISK_CRITICAL, DISK_LOW
from moldau.inspection.directory_check import META_FILE, Directory, Found, find
from moldau.inspection.findings import Report
from moldau.inspection.partition_check import SEGMENT_NAME
from moldau.inspection.reading import ReadError, names_in

DESCRIPTORS_BESIDE = 2000
"""Descriptors for connections and all else, beside the open segments."""
LEFT_ALONE_FILE = "left-alone"


def check_directory(path: str) -> Iterator[Diagnosis]:
    """Everything that is wrong with a data directory, or with those below it."""
    report = Report()
    found = find(path, report)
    for finding in report.findings:
        severity = CRITICAL if finding.is_problem else NOTICE
        yield Diagnosis(severity, "file", f"{finding.path}: {finding.what}", finding.remedy, [finding.path])
    for directory in found.directories:
        yield from _check_one(directory)
    yield from _check_room(path)
    yield from _check_descriptors(found)


def _check_one(directory: Directory) -> Iterator[Diagnosis]:
    path = directory.path
    names = names_in(path)
    if META_FILE not in names.files:
        what = f"{path} has no {META_FILE}: nobody knows whose it is, and a broker may take it for its own"
        remedy = f"bring back {path}/{META_FILE} (broker.id, cluster.id) from a copy before a broker starts there"
        yield Diagnosis(CRITICAL, "no-meta-properties", what, remedy, [path])
    if not directory.is_running and not directory.is_clean and names.directories:
        what = f"{path} was not closed by its broker: it died, or the power went"
        remedy = f"start the broker: it recovers the logs; to look first: moldau log verify {path}"
        yield Diagnosis(NOTICE, "unclean-shutdown", what, remedy, [path])
    strays = [name for name in names.directories if name.endswith("-stray")]
    if strays:
        what = f"{path} holds {len(strays)} logs that the cluster has no use for: {some(strays)}"
        remedy = f"if nobody misses their records: rm -r {path}/{strays[0]}"
        yield Diagnosis(WARNING, "stray-directories", what, remedy, strays)
    if LEFT_ALONE_FILE in names.files:
        what = f"{path} has logs whose owner nobody knows; the broker leaves them alone"
        yield Diagnosis(WARNING, "left-alone", what, f"look at {path}/{LEFT_ALONE_FILE}; remove a name from it", [path])
    yield from _check_rights(directory)


def _check_rights(directory: Directory) -> Iterator[Diagnosis]:
    """Files of somebody else, and files that their owner may not write."""
    owner = os.stat(directory.path).st_uid
    foreign, closed = [], []
    for place, _, files in os.walk(directory.path):
        for name in (place, *(os.path.join(place, each) for each in files)):
            try:
                found = os.lstat(name)
            except OSError:
                continue  # removed since: the broker may be running
            is_directory = stat.S_ISDIR(found.st_mode)
            needed = stat.S_IRWXU if is_directory else stat.S_IRUSR | stat.S_IWUSR
            if found.st_uid != owner:
                foreign.append(name)
            elif found.st_mode & needed != needed:
                closed.append(name)
    if foreign:
        what = f"{len(foreign)} files in {directory.path} belong to another user than the directory: {some(foreign)}"
        yield Diagnosis(CRITICAL, "wrong-owner", what, f"chown -R {owner} {directory.path}", foreign)
    if closed:
        what = f"{len(closed)} files in {directory.path} may not be read or written by their owner: {some(closed)}"
        yield Diagnosis(CRITICAL, "wrong-permissions", what, f"chmod -R u+rwX {directory.path}", closed)
    if os.stat(directory.path).st_mode & stat.S_IWOTH:
        what = f"{directory.path} may be written by everybody on this machine"
        yield Diagnosis(WARNING, "open-to-all", what, f"chmod o-w {directory.path}", [directory.path])


def _check_room(path: str) -> Iterator[Diagnosis]:
    disk = os.statvfs(path)
    share = disk.f_bavail / disk.f_blocks if disk.f_blocks else 1.0
    if share < DISK_LOW:
        free = disk.f_bavail * disk.f_frsize >> 20
        what = f"the disk of {path} has {share:.0%} free ({free} MiB)"
        remedy = "keep less (retention.ms, retention.bytes), or move the directory to a larger disk"
        yield Diagnosis(CRITICAL if share < DISK_CRITICAL else WARNING, "disk-nearly-full", what, remedy, [path])
    inodes = disk.f_favail / disk.f_files if disk.f_files else 1.0
    if inodes < DISK_CRITICAL:
        what = f"the disk of {path} has room for {disk.f_favail} more files only"
        yield Diagnosis(
            CRITICAL, "inodes-nearly-gone", what, "use longer segments (segment.bytes), or another disk", [path]
        )


def _check_descriptors(found: Found) -> Iterator[Diagnosis]:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    segments = 0
    for each in found.partitions:
        try:
            segments += sum(SEGMENT_NAME.fullmatch(name) is not None for name in names_in(each.path).files)
        except ReadError:
            continue  # told with its rights
    needed = segments + DESCRIPTORS_BESIDE
    if limit != resource.RLIM_INFINITY and limit < needed:
        what = f"this shell may open {limit} files, and a broker with {segments} segments wants {needed}"
        remedy = f"ulimit -n {max(needed, 100_000)} before the broker starts (LimitNOFILE= in its systemd unit)"
        yield Diagnosis(NOTICE, "descriptors", what, remedy)
