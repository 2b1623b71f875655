import json
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.broker import background_imports
from moldau.broker.background_imports import PAUSE_S, BackgroundImports, module_names
from moldau.requests import registry
from moldau.testing.virtual_loop import virtual_loop

START = """
import asyncio, json, sys
from moldau.broker import main
from moldau.broker.broker import Broker

async def modules_at_the_start(config):
    broker = Broker(config)
    await broker.start()
    loaded = list(sys.modules)
    await broker.stop()
    return loaded

options = main.argument_parser().parse_args(["--port", "0", "--data", sys.argv[1]])
config, _ = main.BrokerConfig.parse(main.chosen_properties(options))
loop = main._new_event_loop()
print(json.dumps(loop.run_until_complete(modules_at_the_start(config))))
"""

NOT_AT_A_START = (
    "ctypes",  # of asynchronous syncs, and of memory given back
    "kazoo",
    "moldau.broker.leader_fetcher",
    "moldau.broker.supervisor",
    "moldau.cli",
    "moldau.cluster.embedded.hung_writer",
    "moldau.cluster.zookeeper",
    "moldau.coordinators.classic",
    "moldau.coordinators.groups.shard",
    "moldau.coordinators.transactions.shard",
    "moldau.coordinators.transactions.transaction",
    "moldau.fastpath.produce",
    "moldau.handlers",
    "moldau.log.compaction.cleaner",
    "moldau.pipelines",
    "pathlib",
    "platform",
    "urllib.parse",
    "uuid",
)


@pytest.mark.parametrize("starts", [1, 2], ids=["a new directory", "a directory that was used"])
def test_a_start_imports_nothing_that_only_some_brokers_or_requests_need(tmp_path: Path, starts: int) -> None:
    for _ in range(starts):
        run = subprocess.run([sys.executable, "-c", START, tmp_path / "data"], capture_output=True, text=True)
        loaded = json.loads(run.stdout or run.stderr)
    assert [name for name in NOT_AT_A_START if name in loaded] == []


def test_every_handler_both_coordinators_and_what_a_scrape_needs_are_imported_behind_the_start() -> None:
    names = list(module_names())
    handlers = {f"moldau.handlers.{name}" for name in registry.modules().values()}
    assert handlers < set(names)
    assert {"moldau.coordinators.groups.shard", "moldau.coordinators.transactions.shard"} < set(names)
    assert "moldau.broker.metrics.pages" in names


def test_one_file_is_imported_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = virtual_loop()
    imported: list[tuple[float, str]] = []
    monkeypatch.setattr(background_imports, "import_module", lambda name: imported.append((loop.time(), name)))
    BackgroundImports(loop).start()
    loop.run_until(60)
    assert [name for _, name in imported] == list(module_names())
    times = [time for time, _ in imported]
    assert min(later - earlier for earlier, later in zip([1.0, *times], times, strict=False)) == pytest.approx(PAUSE_S)


def test_a_broker_that_ends_imports_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = virtual_loop()
    imported: list[str] = []
    monkeypatch.setattr(background_imports, "import_module", imported.append)
    imports = BackgroundImports(loop)
    imports.start()
    loop.run_until(1 + 1.5 * PAUSE_S)
    imports.close()
    loop.run_until(60)
    assert imported == list(module_names())[:1]
