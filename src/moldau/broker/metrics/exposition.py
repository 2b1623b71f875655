"""Prometheus's text format 0.0.4 and OpenMetrics 1.0: families of lines, and which of the two a client prefers."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from moldau.protocol.codec import Steps

LABEL_CHARACTERS_MAX: Final = 200
"""Longer values are cut, and end with a checksum: a group id may have 32,767 bytes."""

_SPECIAL = re.compile(r'[\\"\n]')

COUNTER: Final = "counter"
GAUGE: Final = "gauge"


class Format(NamedTuple):
    """One of the two formats."""

    media_type: str
    content_type: str
    is_open_metrics: bool


TEXT = Format("text/plain", "text/plain; version=0.0.4; charset=utf-8", is_open_metrics=False)
OPEN_METRICS = Format(
    "application/openmetrics-text",
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
    is_open_metrics=True,
)


class Family:
    """Samples of one name. A counter's name ends with `_total`."""

    __slots__ = ("description", "kind", "lines", "name")

    def __init__(self, name: str, kind: str, description: str) -> None:
        self.name = name
        self.kind = kind
        self.description = description
        self.lines: list[str] = []

    def add(self, value: float, labels: str = "") -> None:
        """Add a sample; `labels` as `label_text` makes them."""
        self.lines.append(f"{self.name}{labels} {value}\n")

    def text(self, form: Format) -> str:
        """All lines; nothing where there is no sample."""
        if not self.lines:
            return ""
        name = self.name.removesuffix("_total") if form.is_open_metrics and self.kind == COUNTER else self.name
        return f"# HELP {name} {self.description}\n# TYPE {name} {self.kind}\n{''.join(self.lines)}"


def gauge(name: str, description: str) -> Family:
    return Family(name, GAUGE, description)


def counter(name: str, description: str) -> Family:
    return Family(name, COUNTER, description)


def rendered(families: Iterable[Family], form: Format) -> Steps[bytes]:
    """The whole text, a family at each step. Families of one name become one: no format allows two."""
    by_name: dict[str, Family] = {}
    for family in families:
        if by_name.setdefault(family.name, family) is not family:
            by_name[family.name].lines += family.lines
    parts: list[bytes] = []
    for family in by_name.values():
        parts.append(family.text(form).encode("utf-8", "replace"))
        yield
    if form.is_open_metrics:
        parts.append(b"# EOF\n")
    return b"".join(parts)


def label_text(**labels: object) -> str:
    """Labels with their braces."""
    return "{" + ",".join(f'{name}="{label_value(str(value))}"' for name, value in labels.items()) + "}"


def label_value(text: str) -> str:
    """The value of a label, in which nothing can end the label or the line."""
    if len(text) <= LABEL_CHARACTERS_MAX and _SPECIAL.search(text) is None:
        return text
    if len(text) > LABEL_CHARACTERS_MAX:
        text = f"{text[:LABEL_CHARACTERS_MAX]}~{crc32(text.encode('utf-8', 'replace')):08x}"
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def preferred(accept: str) -> Format:
    """OpenMetrics for who likes it at least as much as the older format, which is for everybody else."""
    liking = {OPEN_METRICS.media_type: 0.0, TEXT.media_type: 0.0}
    for item in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        for known in liking:
            if media_type == known:
                liking[known] = max(liking[known], _quality(parameters))
    wished = liking[OPEN_METRICS.media_type]
    return OPEN_METRICS if wished > 0 and wished >= liking[TEXT.media_type] else TEXT


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
