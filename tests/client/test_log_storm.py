"""A storm of log lines from several threads and processes, with the broker gone in between: nobody waits, and every
line is accounted for.

The million of lines: `MOLDAU_STORM_LINES=1000000 pytest -s tests/client/test_log_storm.py`.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.client.log_storm import PHASES, PROCESSES, THREADS
from tests.serving import serving

LINES = int(os.environ.get("MOLDAU_STORM_LINES", "90000"))
BLOCKED_MS_MAX = 10.0
MEMORY_MB_MAX = 120.0
TOPIC = "logs"
PARTITIONS = 3
TIMEOUT_S = 60.0


@pytest.mark.alone
def test_a_storm_of_lines_blocks_nobody_and_every_line_is_accounted_for(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as broker:
        create_topic(broker.bootstrap)
        reports = storm(tmp_path, broker)
        with serving(tmp_path / "data", "--port", str(broker.port)) as again:
            arrived = read_all(again.bootstrap)
    print(json.dumps(reports, indent=1))  # noqa: T201  the report of the million

    assert max(report["blocked_ms"] for report in reports) < BLOCKED_MS_MAX
    assert max(max(report["memory_mb"]) for report in reports) < MEMORY_MB_MAX
    for report in reports:
        lines = [arrived[f"{report['process']}-{thread}"] for thread in range(THREADS)]
        assert all(numbers == sorted(set(numbers)) for numbers in lines), "each once, and in order"
        assert sum(map(len, lines)) == report["delivered"]
        assert report["offered"] == LINES // (PROCESSES * THREADS * PHASES) * THREADS * PHASES
        assert report["dropped"] == report["offered"] - report["delivered"]
        assert report["dropped"] > 0, "the broker was away for longer than the queue lasts"
        assert report["unsure"] == report["waiting"] == 0
        assert report["delivered"] > report["offered"] // 10


def storm(directory: Path, broker: Any) -> list[dict[str, Any]]:
    """The reports of all processes; in the second phase the broker is gone."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.client.log_storm", broker.bootstrap, TOPIC, str(LINES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def phase_ends(phase: int) -> None:
        for _ in range(PROCESSES):
            assert json.loads(program.stdout.readline()) == {"phase": phase}  # type: ignore[union-attr]

    def next_phase() -> None:
        program.stdin.write("go\n")  # type: ignore[union-attr]
        program.stdin.flush()  # type: ignore[union-attr]

    phase_ends(0)
    broker.kill()
    next_phase()
    phase_ends(1)
    with serving(directory / "data", "--port", str(broker.port)):
        next_phase()
        phase_ends(2)
        next_phase()
        reports = [json.loads(program.stdout.readline()) for _ in range(PROCESSES)]
        assert program.wait(TIMEOUT_S) == 0
    return reports


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)


def read_all(bootstrap: str) -> dict[str, list[int]]:
    """The numbers of the lines of each thread, as they stand in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[str, list[int]] = defaultdict(list)
    ends = 0
    while ends < PARTITIONS:
        for message in consumer.consume(1000, 0.2):
            if message.error():
                ends += 1
                continue
            thread, number, *_ = (message.value() or b"").decode().split()
            found[thread].append(int(number))
    consumer.close()
    return found
