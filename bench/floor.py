"""A program in C that does the least that a broker can do with a produce request: the floor under all others."""

import subprocess
from pathlib import Path

from bench.process import Server, start

SOURCE = Path(__file__).with_suffix(".c")
PATH = "floor"
"""What names it where a source tree is named otherwise."""


def start_floor(name: str, policy: str) -> Server:
    """The floor under a policy, `os` or `group`, compiled for this machine. It needs no topics."""

    def command(directory: Path, port: int) -> list[str]:
        program, data = directory / PATH, directory / "data"
        data.mkdir()
        flags = ("-O2", "-march=native", "-pthread")
        subprocess.run(["cc", *flags, "-o", str(program), str(SOURCE)], check=True)
        return [str(program), str(port), str(data), policy]

    return start(name, command)


def is_floor(server: Server) -> bool:
    """Whether this is the floor, which knows neither topics nor fetches."""
    return (server.directory / PATH).exists()
