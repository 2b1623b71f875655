"""The tests of `make check`: `pytest --own` leaves out all that start other people's software, and the slow ones.

The law: nothing slips in. A test belongs to `make check` unless it asks for a fixture that starts such software, stands
in a file or directory that is listed here, or is marked `foreign` or `alone`. One that starts a program other than
Python in spite of that fails and is told what to do, also where the program happens to be installed.

Of a test that draws its examples by chance `make check` tries a part, and `make test` all.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.seeds import is_afresh

FOREIGN_FIXTURES = frozenset(("kafka_classpath", "zookeeper"))
OWN_PROGRAMS = ("python", "moldau")
LEFT_OUT = {
    "broker/test_descriptors.py": "starts brokers under prlimit",
    "broker/test_full_disk.py": "mounts a tmpfs",
    "eras": "programs of Kafka 0.8 to 0.10 over ZooKeeper",
    "pipelines": "Spark, databases, a registry",
    "tools": "Kafka's own tools",
    # Slow: brokers as processes, clusters that fail over, models that are run for long, real clients to wait for.
    "broker/test_any_writes.py": "restarts clusters, for long",
    "broker/test_cluster_clients.py": "waits for real clients to find new leaders",
    "broker/test_comeback.py": "kills brokers",
    "broker/test_connection.py": "waits for the limits of connections",
    "broker/test_controller_random.py": "a model, for long",
    "broker/test_group_offsets.py": "kills brokers",
    "broker/test_hostile_frames.py": "measures memory and time",
    "broker/test_long_requests.py": "measures how long the loop is held",
    "broker/test_opener_thread.py": "measures how long the loop is held",
    "broker/test_ownership.py": "starts dozens of brokers",
    "broker/test_serve.py": "starts dozens of brokers",
    "broker/test_supervisor.py": "starts dozens of brokers",
    "broker/test_transactions_at_worst.py": "fills coordinators with very many transactions",
    "broker/test_transactions_survive.py": "kills brokers",
    "broker/test_watchdog.py": "measures how long the loop is held",
    "cli/test_consume.py": "waits for librdkafka's consumers",
    "cli/test_mistakes.py": "starts a process for each mistake",
    "cli/test_perf.py": "measures for some seconds",
    "cli/test_produce.py": "waits for librdkafka's producers",
    "cli/test_produce_consume.py": "waits for librdkafka's consumers",
    "cli/test_replay.py": "waits for librdkafka's consumers, and kills them",
    "client/test_aio.py": "waits for librdkafka's consumers",
    "client/test_clients.py": "waits for librdkafka's consumers",
    "client/test_introductions.py": "waits for librdkafka's consumers",
    "client/test_seeks.py": "waits for librdkafka's consumers",
    "clients/test_commits_survive.py": "kills brokers",
    "console": "pages over real clients and brokers",
    "coordinators/test_random_groups.py": "a model, for long",
    "docs/test_pages.py": "builds every parser for every line of the pages",
    "examples/test_examples.py": "starts the examples as programs",
    "fastpath/test_planted_mistakes.py": "runs long courses, to prove the harness that runs them",
    "faults": "kills brokers",
    "log/compaction/test_cleaner_model.py": "a model, for long",
    "log/test_crash_steps.py": "stops after every operation of a log",
    "protocol/test_differential.py": "asks two other libraries about every version of every message",
    "replication/test_model.py": "a model, for long",
    "replication/test_power_model.py": "a model, for long",
    "replication/test_transaction_model.py": "a model, for long",
    "testing/test_brokers.py": "runs pytest in pytest",
    "testing/test_processes.py": "starts brokers as processes",
}
"""Files and directories below `tests/`, each with its reason."""

EXAMPLES = 100
"""Examples of a test that does not say how many."""
QUICK_EXAMPLES = 20

# A busy machine is no failure; a failure says the line that reproduces it.
settings.register_profile(
    "moldau",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not is_afresh(),
)
settings.register_profile("quick", settings.get_profile("moldau"), max_examples=QUICK_EXAMPLES)
settings.load_profile("moldau")

_PATHS = frozenset(Path(__file__).parent / path for path in LEFT_OUT)
_OPTION = "--own"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="only quick tests that start nobody else's software")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_OPTION):
        config.pluginmanager.register(_OwnOnly(), "own-only")
        before = settings.get_current_profile_name()
        settings.load_profile("quick")
        config.add_cleanup(lambda: settings.load_profile(before))  # a run inside of a run leaves that alone


def examples(count: int) -> int:
    """The examples that a test draws which `make test` gives `count`."""
    return max(1, count * settings().max_examples // EXAMPLES)


class _OwnOnly:
    """What `--own` adds to a run."""

    def __init__(self) -> None:
        self._started: list[str] = []
        sys.addaudithook(self._notice)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in _PATHS else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._started.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        yield
        if self._started:
            started = ", ".join(sorted(set(self._started)))
            pytest.fail(f"it started {started}: mark it with pytest.mark.foreign", pytrace=False)

    def _notice(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen":
            program = os.path.basename(os.fsdecode(arguments[0]))  # type: ignore[arg-type]  # an event has no type
            if not program.startswith(OWN_PROGRAMS):
                self._started.append(program)


def is_left_out(item: pytest.Item) -> bool:
    """Whether `make check` is not for this test, by its marks and fixtures."""
    if any(item.get_closest_marker(name) for name in ("foreign", "alone")):
        return True
    return not FOREIGN_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
