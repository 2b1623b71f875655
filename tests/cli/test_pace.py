"""The speed of long work, and the line that tells of it."""

import io

from moldau.cli.pace import Pace, Progress


class Clock:
    """A clock that moves when somebody rests."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def rest(self, seconds: float) -> None:
        self.now_s += seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_records_pass_at_the_rate() -> None:
    clock = Clock()
    pace = Pace(10, clock.rest, clock)
    for passed in range(21):
        pace.wait(passed)
    assert round(clock.now_s, 6) == 102.0


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()
    Pace(None, clock.rest, clock).wait(1_000_000)
    assert clock.now_s == 100.0


def test_progress_is_drawn_on_a_terminal_and_taken_away() -> None:
    clock, terminal = Clock(), Terminal()
    with Progress("sent", 4000, terminal, clock) as progress:
        progress.show(1)
        clock.rest(1.0)
        progress.show(1000)
    assert terminal.getvalue().split("\r")[1:2] == ["sent 1,000 of 4,000 (25 %) records, 1,000/s"]
    assert terminal.getvalue().endswith("\r")


def test_a_pipe_gets_no_progress() -> None:
    clock, pipe = Clock(), io.StringIO()
    with Progress("sent", None, pipe, clock) as progress:
        clock.rest(1.0)
        progress.show(1000)
    assert pipe.getvalue() == ""
