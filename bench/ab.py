"""Brokers from several source trees in turns: what a produce or fetch request costs each of them.

All are alive at once and get short rounds in turning order, so that what else the machine does hits all alike. CPU is
the broker's own by its process clock, and that of the kernel's threads meanwhile: a sync may run there. After each
round what was written is synced and its pages dropped: a machine that gives memory back to its host books the faults
on whoever writes next. What is fetched stays in memory. The first tree is measured twice: how far "again" is from 1.00
is the noise. `floor` as a tree is a program in C that does the least that a broker can do (`bench/floor.c`). With
`--brokers 3` a tree is a cluster of three whose first broker leads everything, and CPU that of all of them.

    python -m bench.ab before=../main after=. threads=.,log.flush.engine=thread c=floor
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench import floor, kafka, raw_frames
from bench.process import Server, start
from bench.raw_frames import KIB, Script
from bench.side_by_side import note
from moldau.cli.wire import WireCluster
from moldau.records.compression import Codec

DRIVER = Path(__file__).with_name("raw_driver.c")
TOPIC = "t"
STORED_BATCHES = 2_000
"""Batches in a partition that is fetched."""
IS_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD, among the flags in /proc/PID/stat


AGAIN = "again"


class Load(NamedTuple):
    """What the driver does in one round."""

    name: str
    requests: int
    connections: int = 1
    in_flight: int = 5
    partitions: int = 1
    batch_kib: int = 16
    rate: int = 0
    codec: Codec = Codec.NONE
    fetch_kib: int = 0
    """What a fetch asks for; 0: the load is one of produce requests."""


LOADS = (
    Load("1 connection, 5 in flight", 1_000),
    Load("5 connections, 5 in flight", 2_000, connections=5),
    Load("50 connections, 1 in flight", 3_000, connections=50, in_flight=1),
    Load("50 connections, 5 in flight", 4_000, connections=50),
    Load("50 partitions in a request", 300, partitions=50, batch_kib=1),
    Load("1,000 requests/s", 300, rate=1_000),
    Load("4,000 requests/s", 1_200, rate=4_000),
    Load("lz4 of 0.5 KiB", 2_000, batch_kib=1, codec=Codec.LZ4),
    Load("lz4 of 2 KiB", 2_000, batch_kib=4, codec=Codec.LZ4),
    Load("lz4 of 8 KiB, 6 partitions in a request", 600, partitions=6, codec=Codec.LZ4),
    Load("fetch of 64 KiB, 1 connection", 2_000, in_flight=1, fetch_kib=64),
    Load("fetch of 64 KiB, 50 connections", 2_000, connections=50, in_flight=1, fetch_kib=64),
    Load("fetch of 1 MiB, 1 connection", 400, in_flight=1, fetch_kib=1024),
    Load("fetch of 1 MiB, 50 connections", 400, connections=50, in_flight=1, fetch_kib=1024),
)


class Sample(NamedTuple):
    """One round of one broker, for each request."""

    cpu_us: float
    kernel_us: float
    per_s: float
    p50_us: float
    p99_us: float

    @property
    def whole_us(self) -> float:
        return self.cpu_us + self.kernel_us


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.ab", description=__doc__.partition("\n")[0])
    parser.add_argument("trees", nargs="+", metavar="NAME=PATH[,PROPERTY=VALUE...]")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--policy", default="group")
    parser.add_argument("--only", default="", help="parts of names of loads, separated by semicolons")
    parser.add_argument("--brokers", type=int, default=1, help="brokers of a tree, and replicas of a partition")
    options = parser.parse_args()
    names = [each.partition("=")[0] for each in options.trees]
    if len({*names, AGAIN}) <= len(names):
        parser.error(
            f"each tree needs a name of its own, and none is called {AGAIN!r}: that is the first one's second run"
        )
    if options.rounds < 2:
        parser.error("there is no noise to tell in fewer than two rounds")
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        driver = build_driver(Path(directory))
        first = options.trees[0].partition("=")[2]
        trees = [*options.trees, f"{AGAIN}={first}"]
        servers = [stack.enter_context(start_tree(tree, options.policy, brokers=options.brokers)) for tree in trees]
        for load in LOADS:
            able = [server for server in servers if not (load.fetch_kib and floor.is_floor(server))]
            if able and any(part in load.name for part in options.only.split(";")):
                scripts = scripts_for(load, able, driver, Path(directory), options.brokers)
                _print(load, able, _measure(load, able, driver, scripts, options.rounds))


def build_driver(directory: Path) -> Path:
    """The driver, compiled."""
    driver = directory / "raw_driver"
    subprocess.run(["cc", "-O2", "-o", str(driver), str(DRIVER)], check=True)
    return driver


def start_tree(tree: str, policy: str, under: Sequence[str] = (), brokers: int = 1) -> Server:
    """Brokers whose code is that below `PATH/src`, or the floor; a program that watches it stands before it."""
    name, _, rest = tree.partition("=")
    if rest == floor.PATH:
        return floor.start_floor(name, policy)
    path, *properties = rest.split(",")
    source = Path(path).resolve() / "src"
    python = [f"PYTHONPATH={source}", sys.executable, "-P"]
    where = ["import moldau", "print(moldau.__file__)"]
    found = subprocess.run(["env", *python, "-c", ";".join(where)], capture_output=True, text=True, check=True, cwd="/")
    if not found.stdout.startswith(f"{source}/"):
        raise SystemExit(f"{name} would run {found.stdout.strip()}")
    settings = [f"log.flush.policy={policy}", *properties]
    return start(
        name,
        lambda directory, port: [
            "env",
            python[0],
            *under,
            *python[1:],
            *("-m", "moldau", "serve", "--port", str(port), "--data", str(directory / "data")),
            *(("--brokers", str(brokers)) if brokers > 1 else ()),
            *(word for setting in settings for word in ("--override", setting)),
        ],
    )


def _topic(load: Load) -> str:
    return TOPIC + "".join(filter(str.isalnum, load.name))


def scripts_for(
    load: Load, servers: Sequence[Server], driver: Path, directory: Path, brokers: int = 1
) -> dict[str, Script]:
    """The script for each server, by its name; each has the topic, and in it what is fetched."""
    batch, topic = raw_frames.batch_of(load.batch_kib, load.codec), _topic(load)
    produce = raw_frames.produce(directory / topic, topic, load.partitions, batch)
    scripts = {}
    for number, server in enumerate(servers):
        if not floor.is_floor(server):
            replicas = list(range(1, brokers + 1)) if brokers > 1 else None
            kafka.create_topic(server.bootstrap, topic, load.partitions, assigned=replicas)
        scripts[server.name] = produce
        if load.fetch_kib:
            drive(Load("fill", STORED_BATCHES), server, driver, produce)
            with WireCluster(server.bootstrap) as cluster:
                topic_id = cluster.metadata([topic])[0].topic_id
            path, limit_bytes = directory / f"{topic}-{number}", load.fetch_kib * KIB
            scripts[server.name] = raw_frames.fetch(
                path, topic_id, limit_bytes, batch, records=load.batch_kib, stored=STORED_BATCHES
            )
    return scripts


def drive(load: Load, server: Server, driver: Path, script: Script) -> list[float]:
    """What the driver prints."""
    words = (server.port, load.connections, load.in_flight, load.requests, load.rate, *script.words)
    ran = subprocess.run([str(driver), *map(str, words)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{server.name}: {ran.stderr}")
    return list(map(float, ran.stdout.split()))


def _measure(
    load: Load, servers: Sequence[Server], driver: Path, scripts: dict[str, Script], rounds: int
) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {server.name: [] for server in servers}
    for server in servers:
        _sample(load, server, driver, scripts[server.name])  # warms up
    for number in range(rounds):
        first = number % len(servers)
        for server in [*servers[first:], *servers[:first]][:: -1 if number % 2 else 1]:
            samples[server.name].append(_sample(load, server, driver, scripts[server.name]))
    return samples


def _sample(load: Load, server: Server, driver: Path, script: Script) -> Sample:
    cpu_s, before = _cpu_s(server), kernel_threads_cpu_s()
    seconds, p50_us, p99_us, answers_bytes = drive(load, server, driver, script)
    cpu_s, after = _cpu_s(server) - cpu_s, kernel_threads_cpu_s()
    kernel_s = sum(spent_s - before.get(pid, 0.0) for pid, spent_s in after.items())
    if not load.fetch_kib:
        drop_pages(server.data)
    elif answers_bytes < load.requests * load.fetch_kib * KIB // 2:
        raise SystemExit(f"{server.name}: fetches of {answers_bytes / load.requests:.0f} bytes")
    each_us = 1e6 / load.requests
    return Sample(cpu_s * each_us, kernel_s * each_us, load.requests / seconds, p50_us, p99_us)


def _cpu_s(server: Server) -> float:
    return sum(map(process_cpu_s, server.pids()))


def process_cpu_s(pid: int) -> float:
    """CPU of a process with all its threads, in nanoseconds' resolution (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


def kernel_threads_cpu_s() -> dict[str, float]:
    """CPU of each thread of the kernel, whomever it worked for; one that ends takes its share along."""
    spent: dict[str, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[6]) & IS_KERNEL_THREAD:
                    spent[entry.name] = int((entry / "schedstat").read_text().split()[0]) / 1e9
    return spent


def drop_pages(directory: Path) -> None:
    """Sync all files, and let go of their pages."""
    for path in directory.rglob("*.log"):
        file = os.open(path, os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _print(load: Load, servers: Sequence[Server], samples: dict[str, list[Sample]]) -> None:
    base = samples[servers[0].name]
    note(
        f"{load.name}: CPU us a request (lower quartile, median), of it kernel threads; ratio to the first: q1, median"
    )
    for server in servers:
        own = samples[server.name]
        whole = [each.whole_us for each in own]
        ratio = statistics.median(a.whole_us / b.whole_us for a, b in zip(own, base, strict=True))
        note(
            f"  {server.name:12} {_q1(whole):8.1f} {statistics.median(whole):8.1f}"
            f" {statistics.median(each.kernel_us for each in own):7.1f}"
            f"   {_q1(whole) / _q1([each.whole_us for each in base]):5.2f} {ratio:5.2f}"
            f"   {statistics.median(each.per_s for each in own):8,.0f}/s"
            f"   p50 {statistics.median(each.p50_us for each in own):6,.0f} us"
            f"   p99 {statistics.median(each.p99_us for each in own):6,.0f} us"
        )


def _q1(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


if __name__ == "__main__":
    main()
