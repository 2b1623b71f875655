"""Server time and bytes of each page of the console, over a broker with 500 topics, 5,000 partitions and 200 groups.

`python -m bench.console` prints a table; every page is to take less than 200 ms and 200 KB.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs hide NewTopic
from starlette.testclient import TestClient

from moldau.console.app import application
from moldau.console.settings import Settings
from moldau.testing import broker

RUNS = 5
WAIT_S = 120.0
AT_ONCE = 50
LETTERS = 200
MS_MAX, KB_MAX = 200, 200
PAGES = (
    "/",
    "/topics",
    "/topics?q=t",
    "/topics?prefix=area3.",
    "/topics/area7.topic7",
    "/topics/area7.topic7/records",
    "/groups",
    "/groups/group7",
    "/groups/group7/reset?topic=area7.topic7&to=earliest",
    "/clients",
    "/topology",
    "/topology?q=area3",
    "/letters",
    "/letters/area0.dead",
    "/transactions",
)


def fill(bootstrap: str, topics: int, partitions: int, groups: int) -> None:
    """Make the topics, some records and the groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"area{number % 10}.topic{number}" for number in range(topics)]
    for begin in range(0, topics, AT_ONCE):
        some = [NewTopic(name, partitions, 1) for name in names[begin : begin + AT_ONCE]]
        for future in admin.create_topics(some, request_timeout=WAIT_S).values():
            future.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for name in names:
        for number in range(partitions):
            producer.produce(name, b'{"country": "CZ", "amount": 7}' * 5, b"key", number)
        producer.poll(0)
    producer.flush(WAIT_S)
    (made,) = admin.create_topics([NewTopic("area0.dead", partitions, 1)], request_timeout=WAIT_S).values()
    made.result(WAIT_S)
    said = {"topic": names[0], "partition": "0", "offset": "1", "reason": "it is no JSON"}
    for number in range(LETTERS):
        producer.produce(
            "area0.dead",
            b"<value>",
            partition=number % partitions,
            headers=[(f"moldau.dlq.{name}", value.encode()) for name, value in said.items()],
        )
    producer.flush(WAIT_S)
    for number in range(groups):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group{number}"})
        own = [
            TopicPartition(names[(number + each) % topics], part, 0) for each in range(3) for part in range(partitions)
        ]
        consumer.commit(offsets=own, asynchronous=False)
        consumer.close()


def main() -> int:
    """The exit code: 1 if a page is too slow or too large."""
    parser = argparse.ArgumentParser(prog="bench.console", description=(__doc__ or "").partition("\n")[0])
    for name, default in (("topics", 500), ("partitions", 10), ("groups", 200)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args()
    is_met = True
    with broker({"metrics.listener": "127.0.0.1:0"}) as kafka, tempfile.TemporaryDirectory() as directory:
        fill(kafka.bootstrap, options.topics, options.partitions, options.groups)
        settings = Settings(
            kafka.bootstrap,
            {"bootstrap.servers": kafka.bootstrap},
            audit_log=Path(directory) / "audit",
            metrics=(str(kafka.broker.metrics_address),),
            sample_s=3600.0,
        )
        app = application(settings)
        with TestClient(app, base_url="http://localhost") as client:
            snapshot = app.state.console.sampler.snapshot
            sys.stdout.write(f"a look at the cluster took {snapshot.took_s * 1000:.0f} ms\n")
            for path in PAGES:
                times, size = [], 0
                for _ in range(RUNS):
                    begun = time.perf_counter()
                    answer = client.get(path, headers={"Accept": "text/html"})
                    times.append((time.perf_counter() - begun) * 1000)
                    size = len(answer.content)
                    if answer.status_code != 200:
                        raise SystemExit(f"{path}: {answer.status_code}")
                median = sorted(times)[RUNS // 2]
                is_met = is_met and median < MS_MAX and size < KB_MAX * 1000
                sys.stdout.write(f"{path:55} {times[0]:7.1f} ms first {median:7.1f} ms median {size / 1000:7.1f} kB\n")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
