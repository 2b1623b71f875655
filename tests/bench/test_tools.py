"""What measures the tools: the files that `log verify` reads are sound, and what both perf tools say is compared."""

import json
from collections.abc import Callable
from pathlib import Path

from bench.log_verify import fill, forget
from bench.perf_tools import WORK, Row, table
from tests.cli.conftest import Ended, run_tool

__all__ = ["run_tool"]


def test_files_to_verify_are_a_sound_partition(tmp_path: Path, run_tool: Callable[[list[str], bytes], Ended]) -> None:
    files = fill(tmp_path / "verified-0", 10_000_000, 16 * 1024)
    forget(files)
    ended = run_tool(["log", "verify", str(tmp_path / "verified-0"), "--json"], b"")
    told = json.loads(ended.output)
    assert (ended.code, told["problems"]) == (0, [])
    assert told["bytes"] == sum(path.stat().st_size for path in files) >= 10_000_000


def test_tools_that_differ_are_seen_in_the_table() -> None:
    rows = [Row("moldau", WORK[0], 100_000.0, 104_000.0), Row("kafka", WORK[-1], 2.0, 1.5)]
    *_, first, second = table(rows).splitlines()
    assert first == "| moldau | produce 100 B, acks=1 | 100,000 records/s | 104,000 records/s | +4% |"
    assert second.endswith("| 2.00 ms | 1.50 ms | -25% |")
