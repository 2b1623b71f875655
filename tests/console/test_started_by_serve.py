"""`moldau serve --console`: a console beside one broker or several, in a process of its own, that ends with them."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.ports import HOST, free_ports
from tests.serving import Serving, serving

TIMEOUT_S = 20.0


def asked(address: str) -> Any:
    with urllib.request.urlopen(f"{address}?format=json", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def said(server: Serving) -> str:
    """The address that the console tells, behind what the brokers tell."""
    assert server.process.stdout is not None
    for line in server.process.stdout:
        found = re.search(rb"the console is ready at (\S+)", line)
        if found:
            return found[1].decode()
    raise AssertionError(f"there is no console: {server.log}")


@pytest.mark.parametrize(("brokers", "end"), [(1, Serving.stop), (1, Serving.kill), (3, Serving.stop)])
def test_it_shows_the_brokers_and_ends_with_them_however_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brokers: int, end: Callable[[Serving], object]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    several = ("--brokers", str(brokers)) if brokers > 1 else ()
    with serving(tmp_path / "data", *several, "--console-port", "0") as server:
        address = said(server)
        told = asked(address)
        assert [each["is_there"] for each in told["brokers"]] == [True] * brokers
        assert told["problems"] == []
        end(server)
        assert server.process.stdout is not None
        server.process.stdout.read()  # comes to its end when the last process that holds it has ended
        with pytest.raises(urllib.error.URLError, match="refused"):
            asked(address)


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with serving(tmp_path / "data", "--port", str(port)):
        place = ("--port", str(port), "--bootstrap-server", f"{HOST}:{port}", "--audit-log", str(tmp_path / "audit"))
        command = [sys.executable, "-m", "moldau", "console", *place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"cannot listen at 127.0.0.1:{port} (Address already in use): choose another with --port" in done.stderr
    assert done.stderr.count("\n") == 1
