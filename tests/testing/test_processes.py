"""A broker process as tests handle it."""

import re
from pathlib import Path

import pytest

from moldau.testing.ports import free_ports
from moldau.testing.processes import BrokerProcess


@pytest.fixture
def process(tmp_path: Path) -> BrokerProcess:
    (port,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    return BrokerProcess(tmp_path, {"broker.id": "7", "listeners": listeners, "log.dirs": str(tmp_path / "data")})


def test_a_process_lives_dies_and_comes_back_at_the_same_address(process: BrokerProcess) -> None:
    process.start()
    first = process.pid
    try:
        assert process.bootstrap in process.ready_line
        process.kill9()
        assert not process.is_running
        process.start()
        assert process.pid != first
        assert process.bootstrap in process.ready_line
        assert process.cpu_s() > 0
        assert 10 < process.resident_mb() < 500
        assert process.terminate() == 0
    finally:
        process.kill9()


def test_a_stopped_process_goes_on(process: BrokerProcess) -> None:
    def state() -> str:
        found = re.search(r"^State:\s+(\w)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
        return found[1] if found else ""

    process.start()
    try:
        process.sigstop()
        assert state() == "T"
        process.sigcont()
        assert process.terminate() == 0
    finally:
        process.sigcont()
        process.kill9()


def test_a_broker_that_does_not_come_up_says_why(process: BrokerProcess) -> None:
    process.properties["listeners"] = "NOBODY KNOWS"
    with pytest.raises(RuntimeError, match="ended with 2"):
        process.start()
