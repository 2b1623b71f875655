"""kill -9 in the middle of a full-speed produce, again and again."""

import shutil
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.testing.ports import free_ports
from tests.serving import Serving
from tests.tools.java_tools import JavaTools

KILLS = 50
ACKNOWLEDGED_PER_ROUND = 2_000
QUEUED_MAX = 5_000
"""Ten times what may be in flight, so that it never runs dry. A longer queue is only more to read after every kill."""
SEGMENT_BYTES = 100_000
"""Two or three rounds: many kills find a segment that has outlived one, others a new one."""
TOPIC = "ledger"
READ_TIMEOUT_S = 30


class FullSpeed:
    """An idempotent producer that numbers its records and notes which were acknowledged, and where."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": QUEUED_MAX,
            }
        )
        self.acknowledged: dict[int, int] = {}
        self.errors: list[KafkaError] = []
        self._sent = 0
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(TOPIC, str(self._sent).encode(), partition=0, on_delivery=self._delivered)
                self._sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)
        self._producer.flush(READ_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._progress:
            if error is not None:
                self.errors.append(error)
            else:
                number, offset = int(message.value() or b""), message.offset()
                assert offset is not None
                self.acknowledged[number] = offset
            self._progress.notify_all()

    def wait_for_more(self, count: int) -> None:
        """Until `count` more records are acknowledged."""
        with self._progress:
            goal = len(self.acknowledged) + count
            done = self._progress.wait_for(lambda: len(self.acknowledged) >= goal or self.errors, READ_TIMEOUT_S)
            assert done, "no acknowledgement arrives any more"
            assert not self.errors, self.errors

    def finish(self) -> int:
        """Stop, wait for everything; how many were sent."""
        self._stop.set()
        self._thread.join()
        assert not self.errors, self.errors
        return self._sent


def read_all(bootstrap: str, start: int) -> list[tuple[int, int]]:
    """(offset, number) of every record from offset `start` to the end as it is now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), READ_TIMEOUT_S)
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        found: list[tuple[int, int]] = []
        while start + len(found) < end:
            missing = end - start - len(found)  # asked for more, it would wait for the producer
            messages = consumer.consume(min(missing, 10_000), READ_TIMEOUT_S)
            assert messages, f"the log ends at {start + len(found)}, not at {end}"
            found.extend((message.offset() or 0, int(message.value() or b"")) for message in messages)
        return found
    finally:
        consumer.close()


def test_fifty_kills_lose_nothing_and_repeat_nothing(tmp_path: Path, kafka_classpath: str) -> None:
    data = tmp_path / "data"
    (port,) = free_ports(1)  # no other test is given it between a kill and the next start
    settings = ("--port", str(port), "--override", f"log.segment.bytes={SEGMENT_BYTES}")
    server = Serving(data, *settings)
    producer = FullSpeed(server.bootstrap)
    records: list[tuple[int, int]] = []
    copies: list[Path] = []
    try:
        for kill in range(KILLS):
            producer.wait_for_more(ACKNOWLEDGED_PER_ROUND)
            server.kill()
            acknowledged = dict(producer.acknowledged)
            server = Serving(data, *settings)
            records += read_all(server.bootstrap, len(records))
            check(records, acknowledged)
            copies += copy_last_segments(data, tmp_path / f"copy-{kill}")
        sent = producer.finish()
        records += read_all(server.bootstrap, len(records))
        check(records, producer.acknowledged)
        assert [number for _, number in records] == list(range(sent))
        assert server.stop() == 0
    finally:
        producer.finish()
        if server.process.poll() is None:
            server.kill()
    dump(copies, kafka_classpath)


def check(records: list[tuple[int, int]], acknowledged: dict[int, int]) -> None:
    """Every acknowledged record is where it was acknowledged, once, and the order is that of sending."""
    assert [offset for offset, _ in records] == list(range(len(records)))
    numbers = [number for _, number in records]
    assert numbers == list(range(len(numbers)))
    for number, offset in acknowledged.items():
        assert numbers[offset] == number


def copy_last_segments(data: Path, to: Path) -> list[Path]:
    """The newest segment as recovery left it (nothing older changes)."""
    to.mkdir()
    newest = sorted((data / f"{TOPIC}-0").glob("*.log"))[-1]
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(newest.with_suffix(suffix), to)
    return [to / newest.name]


def dump(logs: list[Path], classpath: str) -> None:
    """Kafka's own tool reads every copy and finds nothing to complain about."""
    output = JavaTools(classpath).dump(logs, "--deep-iteration")
    lines = output.splitlines()
    assert sum(line.startswith("Dumping ") for line in lines) == len(logs)
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert batches
    assert all("isvalid: true" in line for line in batches)
    assert "Found" not in output, output[-2000:]
