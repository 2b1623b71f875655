"""`make demo` without Spark: it opens onto a console whose counts change, and with `--headless` onto none."""

import json
import random
import re
import shutil
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from examples import demo

TIMEOUT_S = 20.0


def asked(address: str) -> Any:
    with urllib.request.urlopen(f"{address}?format=json", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def test_the_demo_opens_onto_the_console_and_its_counts_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo"])
    shutil.copy(demo.PIPELINE, tmp_path)
    with demo._brokers(tmp_path / "brokers") as bootstrap, demo._console(tmp_path, bootstrap):
        found = re.search(r"the console is ready at (http://localhost:\d+)/", capsys.readouterr().out)
        assert found is not None
        demo._run("topics", "create", demo.TOPIC, "--partitions", "3", "--bootstrap-server", bootstrap)
        visitors = demo.Visitors(bootstrap, random.Random(7))
        visitors.start()
        seen: set[int] = set()
        end = time.monotonic() + 2 * TIMEOUT_S
        while len(seen) < 3 and time.monotonic() < end:
            rows = asked(f"{found[1]}/topics")["rows"]
            seen |= {row["offset_range"] for row in rows if row.get("name") == demo.TOPIC}
        visitors.until = 0.0
        visitors.join(TIMEOUT_S)
        assert len(seen) >= 3, "the counts change"
        assert [row["name"] for row in asked(f"{found[1]}/pipelines")["rows"]] == ["visits"]
        assert [each["is_there"] for each in asked(f"{found[1]}/")["brokers"]] == [True] * 3


def test_without_a_head_there_is_no_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--headless"])
    with demo._console(tmp_path, "localhost:1"):
        assert capsys.readouterr().out == ""
