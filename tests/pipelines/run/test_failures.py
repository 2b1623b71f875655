"""Errors of Spark in one line."""

from typing import Any

import pytest

import moldau
from moldau.pipelines.file.problems import Place
from moldau.pipelines.run.failures import explain, line_of_user


class Captured(Exception):
    """As PySpark keeps a Java exception."""

    def __init__(self, words: str, cause: Any = None) -> None:
        super().__init__(words)
        self._desc = words
        self._cause = cause


CASES = {
    "a Java class": ("java.net.UnknownHostException: nowhere", "UnknownHostException: nowhere"),
    "a lost task": (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in "
        "stage 3.0 (TID 7) (localhost executor driver): org.apache.kafka.common.errors.RecordTooLargeException: The "
        "message is 2000000 bytes\n\tat Foo.bar(Foo.java:1)\n\nDriver stacktrace:",
        "RecordTooLargeException: The message is 2000000 bytes",
    ),
    "a condition with its state": (
        "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nSELECT 1/0",
        "Division by zero.",
    ),
    "a condition in a traceback": (
        'Traceback (most recent call last):\n  File "a.py", line 1\n'
        "pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'a' is no number.",
        "The value 'a' is no number.",
    ),
    "a plan after the message": (
        "[X] no such column; line 1 pos 7;\n'Project ['nope]\n+- ~SubqueryAlias a",
        "no such column; line 1 pos 7",
    ),
    "a Python traceback, with a message of two lines": (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in call\n    raise e\n           ^\n'
        'psycopg.errors.UndefinedTable: relation "visits" does not exist\nLINE 1: INSERT INTO visits\n\n'
        "=== Streaming Query ===\nIdentifier: [id = 1]\n",
        'UndefinedTable: relation "visits" does not exist LINE 1: INSERT INTO visits',
    ),
    "a batch that is too large": (
        "java.lang.OutOfMemoryError: Java heap space",
        "OutOfMemoryError: Java heap space (make batches smaller by `max_per_batch`, or give Spark more by "
        "`spark: {spark.driver.memory: 4g}`)",
    ),
    "an error of ours in a traceback": (
        'Traceback (most recent call last):\n  File "a.py", line 1\n'
        "moldau.pipelines.file.problems.PipelineError: visits.yaml:9: sink 'table': no column 'day'\n SQLSTATE: 38000",
        "visits.yaml:9: sink 'table': no column 'day'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_words_of(case: str) -> None:
    words, expected = CASES[case]
    assert explain(Captured(words)) == expected


def test_the_root_cause_is_told_if_it_has_words() -> None:
    assert (
        explain(Captured("Query failed", Captured("task failed", Captured("the disk is full")))) == "the disk is full"
    )
    assert explain(Captured("Query failed", Captured(""))) == "Query failed"
    assert explain(KeyError("at")) == "KeyError: 'at'"
    assert explain(Captured("")) == "Captured"


def _in_worker(*frames: str, error: str) -> Captured:
    stack = "".join(f'  File "{file}", line 7, in cents\n    return int(amount)\n           ^^^\n' for file in frames)
    words = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
    return Captured("Query failed", Captured(f"{words}{stack}{error}"))


def test_an_error_in_a_function_of_the_users_names_the_last_line_of_theirs() -> None:
    numpy = "/srv/venv/lib/python3.11/site-packages/numpy/core.py"
    error = _in_worker("/srv/orders.py", "/srv/money.py", numpy, "<frozen x>", error="ValueError: 'a lot'")
    assert line_of_user(error) == (Place("/srv/money.py", 7), "return int(amount)")
    assert explain(error) == "ValueError: 'a lot' (/srv/money.py:7: return int(amount))"


@pytest.mark.parametrize("file", [moldau.__file__, "/tmp/spark/moldau.zip/moldau/pipelines/formats/avro.py"])
def test_an_error_in_our_own_functions_is_no_line_of_the_users(file: str) -> None:
    error = _in_worker("/opt/pyspark.zip/pyspark/worker.py", file, error="moldau.x.RegistryError: no answer")
    assert (line_of_user(error), explain(error)) == (None, "no answer")


def test_a_message_of_pages_is_cut() -> None:
    assert len(explain(Captured("x" * 10_000))) == 600
