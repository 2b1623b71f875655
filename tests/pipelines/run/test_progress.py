"""What is made of Spark's progress events."""

import io
import json
from typing import Any

import pytest

from moldau.pipelines.run.display import Display, line, size, span
from moldau.pipelines.run.progress import Figures, Offsets, Progress, lag, positions


def kafka(
    end: Offsets, latest: Offsets | None = None, description: str = "KafkaV2[Subscribe[visits]]"
) -> dict[str, Any]:
    """A source, as Spark tells of it."""
    return {
        "description": description,
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(latest if latest is not None else end),
    }


def told(name: str = "visits.table", batch: int = 0, rows: int = 10, **changes: Any) -> dict[str, Any]:
    """A batch that has ended."""
    return {
        "name": name,
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": 100.0,
        "batchDuration": 250,
        "timestamp": "2026-11-16T05:00:00.000Z",
        "eventTime": {},
        "stateOperators": [],
        "sources": [],
        **changes,
    }


def test_positions_are_those_of_all_topics_of_a_query() -> None:
    sources = [kafka({"a": {0: 5, 1: 7}}), kafka({"b": {0: 2}}), {"description": "FileStreamSource", "endOffset": "1"}]
    assert positions(sources) == {"a": {0: 5, 1: 7}, "b": {0: 2}}


def test_a_topic_that_is_read_twice_counts_where_it_is_slower() -> None:
    assert positions([kafka({"a": {0: 5, 1: 2}}), kafka({"a": {0: 3, 1: 9}})]) == {"a": {0: 3, 1: 2}}


def test_offsets_may_be_told_as_values_too() -> None:
    source = {"description": "KafkaV2[Subscribe[a]]", "endOffset": {"a": {"0": 5}}, "latestOffset": None}
    assert positions([source]) == {"a": {0: 5}}
    assert lag([source]) == 0


def test_the_lag_is_what_is_there_and_not_read() -> None:
    read, there = {"a": {0: 5, 1: 10}}, {"a": {0: 25, 1: 10, 2: 4}}
    assert lag([kafka(read, there)]) == 24
    assert lag([kafka({"a": {0: 5}}, {"a": {0: 3}})]) == 0
    assert lag([{"description": "RateStreamV2", "endOffset": "5"}]) is None


def test_positions_are_committed_for_each_batch_of_the_runs_own_queries() -> None:
    committed: list[tuple[str, Offsets]] = []
    progress = Progress(("visits.table",), lambda name, found: committed.append((name, found)))
    progress.progressed(told(sources=[kafka({"a": {0: 5}})]))
    progress.progressed(told("another pipeline's", sources=[kafka({"a": {0: 6}})]))
    progress.progressed(told(batch=1, sources=[]))
    assert committed == [("visits.table", {"a": {0: 5}})]
    assert progress.figures["visits.table"].batch == 1


def test_figures_are_those_of_the_last_batch_and_rows_of_all() -> None:
    progress = Progress(("visits.table",))
    progress.started("id", "visits.table")
    operators = [{"numRowsTotal": 40, "memoryUsedBytes": 1000, "numRowsDroppedByWatermark": 3}]
    event_time = {"watermark": "2026-11-15T04:00:00.000Z"}
    progress.progressed(told(rows=10, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}))
    assert progress.figures["visits.table"].watermark is None
    sources = [kafka({"a": {0: 5}}, {"a": {0: 9}})]
    changes: dict[str, Any] = {"stateOperators": operators, "eventTime": event_time, "sources": sources}
    progress.progressed(told(batch=1, rows=5, **changes))
    progress.progressed(told(batch=2, rows=5, processedRowsPerSecond=float("nan"), **changes))
    [figures] = progress.as_status()
    assert figures == {
        "name": "visits.table",
        "state": "running",
        "batch": 2,
        "rows": 20,
        "rows_per_second": 0.0,
        "lag": 4,
        "batch_ms": 250,
        "watermark": "2026-11-15T04:00:00.000Z",
        "delay_s": 25 * 3600.0,
        "state_rows": 40,
        "state_bytes": 1000,
        "late_rows": 6,
        "at": "2026-11-16T05:00:00.000Z",
        "error": None,
    }


@pytest.mark.parametrize(("failed", "state"), [(False, "ended"), (True, "failed")])
def test_a_query_ends_or_fails(failed: bool, state: str) -> None:
    progress = Progress(("visits.table", "visits.topic"))
    progress.started("1", "visits.table")
    progress.started("2", "visits.topic")
    progress.idle("2")
    progress.terminated("1", failed)
    progress.terminated("unknown", True)
    assert [each["state"] for each in progress.as_status()] == [state, "idle"]
    assert progress.ended == {"visits.table"}


# --- in the terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_shows_one_line_a_query_again_and_again() -> None:
    out, clock = io.StringIO(), Clock()
    display = Display(out, clock, live=True)
    progress = Progress(("visits.table", "visits.topic"))
    display.say("to sqlite, exactly once")
    display.show(progress)
    progress.progressed(told(batch=7))
    display.show(progress)  # too soon
    clock.now = 1
    display.show(progress)
    assert "batch 7" in out.getvalue()
    assert len(_screen(out.getvalue())) == 3
    display.say("a group cannot be written")
    screen = _screen(out.getvalue())
    assert screen[1] == "a group cannot be written"
    assert [row.split()[0] for row in screen[2:]] == ["visits.table", "visits.topic"]


def _screen(written: str) -> list[str]:
    """What a terminal shows after it."""
    rows, row = [""], 0
    for part in written.replace("\x1b[", "\0\x1b[").replace("\n", "\0\n").replace("\r", "\0").split("\0"):
        if part.startswith("\n"):
            row += 1
            rows.extend([""] * (row + 1 - len(rows)))
            rows[row] = part[1:] or rows[row]
        elif part.startswith("\x1b[2K"):
            rows[row] = part[4:]
        elif part.startswith("\x1b["):
            row -= int(part[2 : part.index("A")])
        else:
            rows[row] = part or rows[row]
    return [shown for shown in rows if shown]


def test_a_log_gets_few_lines() -> None:
    out, clock = io.StringIO(), Clock()
    display = Display(out, clock, live=False)
    progress = Progress(("visits.table",))
    progress.started("1", "visits.table")
    display.show(progress)
    for number in range(30):
        clock.now = number
        progress.progressed(told(batch=number))
        display.show(progress)
    progress.terminated("1", failed=False)
    display.show(progress)
    display.show(progress)
    lines = out.getvalue().splitlines()
    assert [row.split()[1:4] for row in lines] == [
        ["running", "batch", "0"],
        ["running", "batch", "10"],
        ["running", "batch", "20"],
        ["ended", "batch", "29"],
    ]


def test_a_line_has_rows_lag_batch_time_watermark_and_state() -> None:
    at = "2026-11-15T04:00:00.000Z"
    figures = Figures("visits.table", "running", 12, 5000, 2500.4, 120, 800, at, 90_061, 40, 2500, 2)
    words = " ".join(line(figures).split())
    assert words == (
        "visits.table running batch 12 5,000 rows 2,500/s lag 120 0.80 s "
        "watermark 2026-11-15 04:00:00 (1 d 1 h back) state 40 rows 3 kB 2 late"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (65, "1 min 5 s"), (3600, "1 h"), (90_061, "1 d 1 h"), (86_460, "1 d"), (-90, "-1 min 30 s")],
)
def test_a_time_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_sizes_are_rounded() -> None:
    assert [size(0), size(1), size(12_500_000), size(3 * 10**9)] == ["0 kB", "1 kB", "12.5 MB", "3.0 GB"]
