"""Reader of OpenTelemetry's metrics, as clients push them (KIP-714): gauges and sums, as far as they are numbers.

Of the protobuf message only what is shown is read; all else is passed over. Law: what a client sends is read once, from
the front to the back, no more than FIELDS_MAX fields of it, and no more than POINTS_MAX figures come of it.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

POINTS_MAX: Final = 2_000
FIELDS_MAX: Final = 100_000
"""Fields of a push: 100 ms of a thread. 2,000 figures with five labels each have half of them."""
LABELS_MAX: Final = 20
"""Labels of a figure; those behind are passed over. Kafka's own clients have some five."""
TEXT_MAX: Final = 200
"""Characters of names and labels that are kept."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10

_double = struct.Struct("<d").unpack
_int64 = struct.Struct("<q").unpack

Field = tuple[int, int | memoryview]


class Point(NamedTuple):
    """A figure."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    """Whether it counts; else it is as it is now."""


class NotMetrics(Exception):
    """Error: the bytes are not a message of metrics."""


def points(data: bytes) -> list[Point]:
    """All figures of a message. Raises NotMetrics."""
    found: list[Point] = []
    reader = _Reader()
    try:
        for resource in reader.messages(memoryview(data), 1):
            for scope in reader.messages(resource, 2):
                for metric in reader.messages(scope, 2):
                    for each in reader.points(metric):
                        found.append(each)
                        if len(found) >= POINTS_MAX:
                            return found
    except (IndexError, struct.error) as error:
        raise NotMetrics("the message is cut off") from error
    return found


class _Reader:
    """Reader of one push, which counts its fields."""

    __slots__ = ("_fields_left",)

    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX

    def points(self, metric: memoryview) -> Iterator[Point]:
        name, bodies = "", []
        for number, value in self._fields(metric):
            if number == 1:
                name = _text(value)
            elif number in (5, 7):
                bodies.append((number == 7, value))
        for is_sum, body in bodies:
            for point in self.messages(_whole(body), 1):
                figure, labels = self._figure_and_labels(point)
                if figure is not None and figure == figure:
                    yield Point(name, tuple(sorted(labels)), float(figure), is_sum)

    def _figure_and_labels(self, point: memoryview) -> tuple[float | None, list[tuple[str, str]]]:
        figure: float | None = None
        labels: list[tuple[str, str]] = []
        for number, value in self._fields(point):
            if number == 4:
                (figure,) = _double(_whole(value))
            elif number == 6:
                (figure,) = _int64(_whole(value))
            elif number == 7 and len(labels) < LABELS_MAX:
                labels.append(self._label(_whole(value)))
        return figure, labels

    def _label(self, pair: memoryview) -> tuple[str, str]:
        """Name and value of an attribute; a value that is no text, number or truth is empty."""
        name = text = ""
        for number, value in self._fields(pair):
            if number == 1:
                name = _text(value)
            elif number == 2:
                for kind, inner in self._fields(_whole(value)):
                    if kind == 1:
                        text = _text(inner)
                    elif kind == 4:
                        text = str(_double(_whole(inner))[0])
                    elif kind in (2, 3) and isinstance(inner, int):
                        text = str(inner)
        return name, text

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        return (_whole(value) for number, value in self._fields(data) if number == wanted)

    def _fields(self, data: memoryview) -> Iterator[Field]:
        """Fields of a message: varints as numbers, all others as their bytes."""
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise NotMetrics(f"more than {FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            if kind == _BYTES:
                size, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise NotMetrics(f"a field of the kind {kind}")
            if size > end - position:
                raise NotMetrics("the message is cut off")
            yield tag >> 3, data[position : position + size]
            position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(_VARINT_BYTES_MAX):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, position
    raise NotMetrics("a number of more than ten bytes")


def _whole(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise NotMetrics("a number where a message should be")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_whole(value)[: 4 * TEXT_MAX]).decode("utf-8", "replace")[:TEXT_MAX]
