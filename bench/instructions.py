"""Instructions that brokers from several source trees execute for a request, counted by valgrind (callgrind).

Counts do not hang on what else the machine does: two runs of the same code differ by less than a hundredth, where its
CPU time differs by a tenth. They are of the process alone; what the kernel does for it is not in them. The trees, loads
and drivers are those of `bench.ab`.

    python -m bench.instructions before=../main after=. --only "1 connection, 5"
"""

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from bench.ab import LOADS, Load, build_driver, drive, scripts_for, start_tree
from bench.process import Server
from bench.raw_frames import Script
from bench.side_by_side import note

OUTPUT = "callgrind.out"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.instructions", description=__doc__.partition("\n")[0])
    parser.add_argument("trees", nargs="+", metavar="NAME=PATH[,PROPERTY=VALUE...]")
    parser.add_argument("--policy", default="os")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--only", default="", help="parts of names of loads, separated by semicolons")
    options = parser.parse_args()
    loads = [
        load._replace(requests=options.requests, rate=0)
        for load in LOADS
        if any(part in load.name for part in options.only.split(";"))
    ]
    counts: dict[str, dict[str, list[float]]] = {load.name: {} for load in loads}
    with tempfile.TemporaryDirectory() as directory:
        driver = build_driver(Path(directory))
        for number, tree in enumerate(options.trees):
            output = Path(directory) / f"{OUTPUT}.{number}"
            with _start(tree, options.policy, output) as server:
                for load in loads:
                    script = scripts_for(load, [server], driver, Path(directory))[server.name]
                    rounds = [_count(load, server, driver, script, output) for _ in range(options.rounds + 1)]
                    counts[load.name][server.name] = rounds[1:]  # the first one learns
    for name, by_tree in counts.items():
        _print(name, by_tree)


def _start(tree: str, policy: str, output: Path) -> Server:
    valgrind = ("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={output}")
    return start_tree(tree, policy, valgrind)


def _count(load: Load, server: Server, driver: Path, script: Script, output: Path) -> float:
    """Instructions of one request."""
    _control("--zero", server.pid)
    drive(load, server, driver, script)
    _control("--dump", server.pid)
    newest = max(output.parent.glob(f"{output.name}*"), key=lambda path: path.stat().st_mtime_ns)
    total = re.search(r"^(?:summary|totals): (\d+)", newest.read_text(), re.MULTILINE)
    newest.unlink()
    if total is None:
        raise SystemExit(f"{newest.name} has no count")
    return int(total[1]) / load.requests


def _control(word: str, pid: int) -> None:
    subprocess.run(["callgrind_control", word, str(pid)], check=True, capture_output=True)


def _print(name: str, by_tree: dict[str, list[float]]) -> None:
    first = min(next(iter(by_tree.values())))
    note(f"{name}: instructions of the process for a request (least, most); ratio to the first")
    for tree, counts in by_tree.items():
        note(f"  {tree:12} {min(counts):10,.0f} {max(counts):10,.0f}   {min(counts) / first:5.3f}")


if __name__ == "__main__":
    main()
