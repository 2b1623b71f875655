"""Both text formats."""

import pytest

from moldau.broker.metrics.exposition import (
    LABEL_CHARACTERS_MAX,
    OPEN_METRICS,
    TEXT,
    Format,
    counter,
    gauge,
    label_text,
    preferred,
    rendered,
)
from moldau.protocol.codec import Steps
from tests.broker.metrics.scraping import parse, value

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def done(steps: Steps[bytes]) -> str:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            text: bytes = end.value
            return text.decode()


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("application/openmetrics-text", OPEN_METRICS),
        (PROMETHEUS_3, OPEN_METRICS),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=much", TEXT),
        (";;,=,;q=", TEXT),
    ],
)
def test_the_format_is_the_one_that_the_client_likes_best(accept: str, form: Format) -> None:
    assert preferred(accept) is form


def test_a_counter_is_named_as_each_format_wants_it() -> None:
    requests = counter("requests_total", "Requests.")
    requests.add(3)
    assert done(rendered([requests], TEXT)) == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\nrequests_total 3\n"
    )
    assert done(rendered([requests], OPEN_METRICS)) == (
        "# HELP requests Requests.\n# TYPE requests counter\nrequests_total 3\n# EOF\n"
    )


def test_families_of_one_name_become_one_and_empty_ones_nothing() -> None:
    first, second, empty = gauge("lag", "Lag."), gauge("lag", "Lag."), gauge("none", "None.")
    first.add(1, label_text(group="a"))
    second.add(2, label_text(group="b"))
    assert done(rendered([first, empty, second], TEXT)) == (
        '# HELP lag Lag.\n# TYPE lag gauge\nlag{group="a"} 1\nlag{group="b"} 2\n'
    )


@pytest.mark.parametrize("name", ['"} 1\nforged 1\n', "back\\slash\\", "\r\x00\u2028", "\ud800", "a" * 40_000])
def test_no_name_ends_its_label_or_its_line(name: str) -> None:
    family = gauge("lag", "Lag.")
    family.add(1, label_text(group=name))
    lines = done(rendered([family], TEXT)).split("\n")
    assert len(lines) == 4
    assert lines[2].startswith('lag{group="')
    assert lines[2].endswith('"} 1')
    assert len(lines[2]) < 2 * LABEL_CHARACTERS_MAX + 40


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    one, other = (label_text(group="a" * 300 + end) for end in "xy")
    assert one != other


def test_the_parser_of_these_tests_reads_what_is_written() -> None:
    family = gauge("lag", "Lag.")
    family.add(0.5, label_text(group='a"b', topic="t"))
    assert value(parse(done(rendered([family], TEXT))), "lag", group='a\\"b', topic="t") == 0.5
