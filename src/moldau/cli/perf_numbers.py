"""Numbers that the tools for performance print: rates, averages and percentiles, computed as Kafka's tools do."""

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from moldau.cli.output import say

MB = 1024 * 1024
PERCENTILES = {"50th": 0.5, "95th": 0.95, "99th": 0.99, "99.9th": 0.999}


class Sends:
    """The records of a run that were acknowledged: how many bytes, and how long each took."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.bytes = 0
        self.latencies_ms = array("f")
        self.window_begun_s = begun_s
        self._window_first = 0
        self._window_bytes = 0

    def window(self, now_s: float) -> dict[str, Any]:
        """The numbers since the last window."""
        taken = self.latencies_ms[self._window_first :]
        found = summary(taken, self.bytes - self._window_bytes, now_s - self.window_begun_s)
        self.window_begun_s, self._window_first, self._window_bytes = now_s, len(self.latencies_ms), self.bytes
        return found

    def total(self, now_s: float) -> dict[str, Any]:
        """The numbers of the whole run."""
        found = summary(self.latencies_ms, self.bytes, now_s - self.begun_s)
        return {**found, "percentilesMs": percentiles(self.latencies_ms, PERCENTILES)}


def summary(latencies_ms: Sequence[float], size: int, elapsed_s: float) -> dict[str, Any]:
    """Count, rates and latencies of some records."""
    count, elapsed_s = len(latencies_ms), max(elapsed_s, 0.001)
    return {
        "records": count,
        "recordsPerSecond": count / elapsed_s,
        "mbPerSecond": size / elapsed_s / MB,
        "avgLatencyMs": sum(latencies_ms) / count if count else 0.0,
        "maxLatencyMs": max(latencies_ms, default=0.0),
    }


def percentiles(latencies_ms: Iterable[float], wanted: dict[str, float]) -> dict[str, int]:
    """The latencies below which such shares of the records are, in whole milliseconds."""
    ordered = sorted(latencies_ms)
    return {name: int(ordered[int(share * len(ordered))]) if ordered else 0 for name, share in wanted.items()}


def rates(found: dict[str, Any], digits: int) -> str:
    """Kafka's words for the rates of some records."""
    average, highest = found["avgLatencyMs"], found["maxLatencyMs"]
    volume = f"({found['mbPerSecond']:.2f} MB/sec)"
    return f"{volume}, {average:.{digits}f} ms avg latency, {highest:.{digits}f} ms max latency"


def print_metrics(statistics: str, client: str) -> None:
    """Print librdkafka's own numbers of a client, one for each line."""
    found = json.loads(statistics or "{}")
    for name, value in found.items():
        if isinstance(value, int | float):
            say(f"{client}-metrics:{name:<24} : {value}")
