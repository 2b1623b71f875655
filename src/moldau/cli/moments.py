"""Moments that options name: a date and time in ISO 8601, milliseconds since 1970, or a time ago such as `15m`."""

import argparse
import re
import time
from datetime import UTC, datetime

FORMS = "2026-05-04T10:00, 2026-05-04T10:00+02:00, milliseconds since 1970, 15m or 2h or 1d ago, now"
MS_IN = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_AGO = re.compile(r"-?(\d{1,12})(ms|s|m|h|d)")


def moment(text: str, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of an option's text. A time without a zone is in UTC, as in Kafka's tools."""
    present = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text == "now":
        return present
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, present - int(ago[1]) * MS_IN[ago[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no time: write {FORMS}") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
