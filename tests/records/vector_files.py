"""Bytes that Kafka's own classes and librdkafka wrote. The sources beside them say how.

`librdkafka.txt` was fetched from the mock cluster inside librdkafka (`test.mock.num.brokers`) after a
confluent-kafka producer had sent `SENT` to it, with each codec.
"""

from pathlib import Path

from moldau.records.batch import Record

DIRECTORY = Path(__file__).parent / "vectors"
T = 1_700_000_000_000
SENT = (
    Record(0, T + 5, b"key", b"value", (("héader", b"value"), ("", None))),
    Record(1, T, None, b"x" * 300),
    Record(2, T + 70_000, b"", None),
    Record(3, T - 1, b"last", b""),
)


def read_outcomes(name: str) -> dict[str, str]:
    """The lines of a file: a name and what belongs to it."""
    lines = (DIRECTORY / name).read_text().splitlines()
    return {key: value for key, _, value in (line.partition(" ") for line in lines)}


def read_vectors(name: str) -> dict[str, bytes]:
    """As `read_outcomes`, where every line has bytes."""
    return {key: bytes.fromhex(value) for key, value in read_outcomes(name).items()}
