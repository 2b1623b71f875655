"""Tours: pages of command lines with their real output, made by running them.

`python -m tests.docs.tour` runs every `docs/tours/NAME.txt` on a fresh broker and writes `docs/tours/NAME.md`. Lines:

    # A title            the first such line
    ## A heading
    # A sentence         of the text between commands
    % brokers 3          this tour wants three brokers
    $ moldau topics list a command line of the shell, which has to end well
    $? moldau consume x  one that has to fail

The working directory is empty but for `data`, the brokers' data directory. Ports, times and ids are made equal in the
page; numbers that say how fast something was are made equal only where two pages are compared.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.testing import broker, cluster
from moldau.testing.ports import free_ports

TOURS = Path(__file__).parents[2] / "docs" / "tours"
COMMAND_TIMEOUT_S = 120.0
ENCODED = re.compile(r"(?<=TopicId: )[A-Za-z0-9_-]{22}|(?<=\"topicId\": \")[A-Za-z0-9_-]{22}")
EQUAL = (
    (re.compile(r"\b(localhost|127\.0\.0\.1):\d{4,5}\b"), "localhost:9092"),
    (re.compile(r"(?<![\d.])1[6-9]\d{11}(?!\d)"), "1770000000000"),
    (re.compile(r"\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d([.:]\d{3})?"), r"2026-02-02\g<1>02:40:00"),
    (ENCODED, "AAAAAAAAAAAAAAAAAAAAAA"),
    (re.compile(r"(topic_id: )\S+"), r"\g<1>AAAAAAAAAAAAAAAAAAAAAA"),
    (re.compile(r'(crc"?: )\d+'), r"\g<1>2166136261"),
)
"""Parts of a page that differ from run to run, and what stands for them."""
MEASURED = re.compile(r"records/sec|[KMG]iB/s|Avg latency|Percentiles|^2026-.*, \d+\.\d+, |^0\t")
"""A line with measured numbers."""


def page(tour: Path) -> str:
    """The page of a tour, from a fresh run."""
    lines = tour.read_text().splitlines()
    count = next((int(line.split()[2]) for line in lines if line.startswith("% brokers ")), 1)
    with tempfile.TemporaryDirectory(prefix="tour-") as directory:
        place = Path(directory)
        with _brokers(count, place / "data") as bootstrap:
            body = "".join(_parts(lines, _Shell(place, bootstrap)))
    made = f"<!-- made from {tour.name} by `python -m tests.docs.tour` -->\n\n"
    return _normalised(made + body.strip("\n") + "\n", directory)


@contextmanager
def _brokers(count: int, data: Path) -> Iterator[str]:
    if count == 1:
        (port,) = free_ports(1)
        with broker({"metrics.listener": f"127.0.0.1:{port}"}, data) as one:
            yield one.bootstrap
    else:
        with cluster(count, data=data) as several:
            yield several.bootstrap


class _Shell:
    """A shell in a directory, in which `moldau` is the command of this checkout."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        commands = directory / ".commands"
        commands.mkdir()
        moldau = commands / "moldau"
        moldau.write_text(f'#!/bin/sh\nexec {sys.executable} -m moldau "$@"\n')
        moldau.chmod(0o755)
        self._directory = directory
        self._environment = {
            "PATH": f"{commands}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(directory),
            "MOLDAU_BOOTSTRAP_SERVER": bootstrap,
            "DATA": "data",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def output(self, command: str, must_fail: bool) -> str:
        """What a command prints, on both streams."""
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if (ended.returncode != 0) != must_fail:
            raise SystemExit(f"`{command}` ended with {ended.returncode}:\n{ended.stdout}")
        return ended.stdout


def _parts(lines: list[str], shell: _Shell) -> Iterator[str]:
    is_titled = in_block = False
    for line in lines:
        is_command = line.startswith(("$ ", "$? "))
        if in_block and not is_command:
            yield "```\n"
            in_block = False
        if is_command:
            mark, _, command = line.partition(" ")
            yield ("" if in_block else "```console\n") + f"$ {command}\n{shell.output(command, mark == '$?')}"
            in_block = True
        elif line.startswith("## "):
            yield f"{line}\n"
        elif line.startswith("# "):
            yield f"{line}\n" if not is_titled else f"{line[2:]}\n"
            is_titled = True
        elif not line:
            yield "\n"
        elif not line.startswith("% "):
            raise SystemExit(f"{line!r} is no line of a tour")
    if in_block:
        yield "```\n"


def _normalised(text: str, directory: str) -> str:
    text = text.replace(f"{directory}/", "").replace(sys.executable, "python")
    for pattern, equal in EQUAL:
        text = pattern.sub(equal, text)
    return text


def comparable(text: str) -> str:
    """A page without its measured numbers."""
    return "\n".join(re.sub(r"\d+(\.\d+)?", "N", line) if MEASURED.search(line) else line for line in text.splitlines())


def main() -> None:
    """Make all pages anew."""
    for tour in sorted(TOURS.glob("*.txt")):
        tour.with_suffix(".md").write_text(page(tour))
        sys.stdout.write(f"{tour.with_suffix('.md')}\n")


if __name__ == "__main__":
    main()
