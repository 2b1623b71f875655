"""Figures in words, and text of others made harmless to look at."""

import unicodedata
from datetime import UTC, datetime

NOTHING = "\N{EN DASH}"
_UNITS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_SHOWN = "\t\n"


def size(count: float | None) -> str:
    """Bytes: `12.5 MB`."""
    if count is None:
        return NOTHING
    for unit, length in _UNITS:
        if count >= length:
            return f"{count / length:,.1f} {unit}"
    return f"{count:,.0f} B"


def number(count: float | None) -> str:
    """A count with separators."""
    return NOTHING if count is None else f"{count:,.0f}"


def counted(count: int, one: str, more: str = "") -> str:
    """A count with its noun: `1 letter`, `2,000 letters`."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def figure(value: float | None) -> str:
    """A figure of any kind and size: `12`, `0.25`, `1.5e+09`."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.4g}"


def rate(count: float | None) -> str:
    """A number in a second: `0`, `0.4/s`, `1,200/s`."""
    if count is None:
        return NOTHING
    return "0/s" if count == 0 else f"{count:,.1f}/s" if count < 10 else f"{count:,.0f}/s"


def span(seconds: float | None) -> str:
    """A time in its two largest units: `2 min 5 s`."""
    if seconds is None:
        return NOTHING
    if 0 < seconds < 10:
        return f"{seconds:.1f} s"
    rest, units = int(seconds), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            units.append(f"{count} {unit}")
    return " ".join(units[:2]) or "0 s"


def moment(time_ms: int | None) -> str:
    """A time of a record or a sample, in UTC."""
    if time_ms is None or time_ms < 0:
        return NOTHING
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03}"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def visible(text: str) -> str:
    """Text in which characters that are not seen, or that turn the text around, are written out: `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(each if each in _SHOWN or each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if unicodedata.category(character) == "Zs":
        return " "
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
