"""The picture of ratios says the same as the table."""

import re
from xml.etree import ElementTree

from bench.plot import GREEN, RED, Bar, drawn

SVG = "{http://www.w3.org/2000/svg}"
BARS = [
    Bar("records/s of <100 B>", 2.0, more_is_better=True),
    Bar("CPU", 0.5, more_is_better=False),
    Bar("p99", 1.5, more_is_better=False),
    Bar("start", 0.001, more_is_better=False),
]


def test_a_bar_stands_on_its_side_of_the_middle_and_has_the_colour_of_its_verdict() -> None:
    picture = ElementTree.fromstring(drawn("Moldau & Kafka", BARS))
    (middle,) = {float(line.attrib["x1"]) for line in picture.iter(f"{SVG}line")}
    _, *bars = picture.iter(f"{SVG}rect")  # the first is the paper
    assert [bar.attrib["fill"] for bar in bars] == [GREEN, GREEN, RED, GREEN]
    assert [float(bar.attrib["x"]) < middle for bar in bars] == [False, True, False, True]
    twice, half = (float(bar.attrib["width"]) for bar in bars[:2])
    assert twice == half
    assert float(bars[3].attrib["x"]) > 0, "a bar that is too long is cut"


def test_who_cannot_see_it_is_read_the_figures() -> None:
    picture = ElementTree.fromstring(drawn("Moldau & Kafka", BARS))
    said = picture.findtext(f"{SVG}desc") or ""
    assert re.findall(r": ([\d.]+)", said) == ["2.00", "0.50", "1.50", "0.00"]
    assert picture.findtext(f"{SVG}title") == "Moldau & Kafka"
