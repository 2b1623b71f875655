"""The process: what its event loop, its descriptors and its memory are at, as the kernel counts them."""

import os
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version

from moldau.broker.metrics.exposition import Family, counter, gauge, label_text
from moldau.broker.metrics.observed import Observed

_PROCESS = "/proc/self"
SOFTWARE_MAX = 100
"""Kinds of client software that are told apart."""


def process_families(observed: Observed) -> list[Family]:
    """Families of the process and of its connections."""
    families = [_one(gauge("moldau_build_info", "The version that runs."), 1, label_text(version=_version()))]
    connections = gauge("kafka_server_socket_server_metrics_connection_count", "Connections of a listener.")
    for listener, count in Counter(peer.listener for peer in observed.listeners.peers()).items():
        connections.add(count, label_text(listener=listener, networkProcessor="0"))
    families += [connections, _software(observed)]
    busy_s = time.thread_time()
    families.append(_one(counter("moldau_loop_busy_seconds_total", "CPU time of the event loop's thread."), busy_s))
    families.append(_one(counter("process_cpu_seconds_total", "CPU time of all threads."), time.process_time()))
    return families + _kernel_families()


def _software(observed: Observed) -> Family:
    """Connections by the software at their other end. Clients choose these names, so their number has a bound."""
    family = gauge("kafka_server_socket_server_metrics_connections", "Connections by the software of the client.")
    counts = Counter((peer.software, peer.listener) for peer in observed.listeners.peers())
    others = 0
    for number, ((software, listener), count) in enumerate(counts.most_common()):
        if number >= SOFTWARE_MAX:
            others += count
            continue
        family.add(
            count,
            label_text(
                clientSoftwareName=software.name,
                clientSoftwareVersion=software.version,
                listener=listener,
                networkProcessor="0",
            ),
        )
    if others:
        family.add(others, label_text(clientSoftwareName="other", clientSoftwareVersion="other"))
    return family


def _kernel_families() -> list[Family]:
    """Families of files below /proc; none on systems without it."""
    try:
        descriptors = len(os.listdir(f"{_PROCESS}/fd"))
        memory_pages = int(_read("statm").split()[1])
        disk = dict(line.split(": ") for line in _read("io").splitlines())
    except (OSError, ValueError):
        return []
    resident = memory_pages * os.sysconf("SC_PAGE_SIZE")
    server = "kafka_server_kafkaserver_linux_disk_"
    return [
        _one(gauge("process_open_fds", "Open descriptors."), descriptors),
        _one(gauge("process_resident_memory_bytes", "Memory of the process."), resident),
        _one(gauge(f"{server}read_bytes", "Bytes that the process read from disks."), int(disk["read_bytes"])),
        _one(gauge(f"{server}write_bytes", "Bytes that the process wrote to disks."), int(disk["write_bytes"])),
    ]


def _read(name: str) -> str:
    with open(f"{_PROCESS}/{name}", encoding="ascii") as file:
        return file.read()


def _version() -> str:
    try:
        return version("moldau")
    except PackageNotFoundError:
        return "unknown"


def _one(family: Family, value: float, labels: str = "") -> Family:
    family.add(value, labels)
    return family
