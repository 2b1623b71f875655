"""Log records as lines of JSON."""

import json
import logging
import socket
from datetime import UTC, datetime
from typing import Any

PLAIN_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""Attributes that every record has; all others are the program's own (`extra`)."""


class JsonFormatter(logging.Formatter):
    """Formatter of one JSON object for each record, in one line; `extra` fields stand beside ours, and never replace
    them."""

    def __init__(self) -> None:
        super().__init__()
        self._host = socket.gethostname()

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "host": self._host,
            "process": record.process,
            "thread": record.threadName,
            "file": record.pathname,
            "line": record.lineno,
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return _text({**extra, **fields})


def _text(fields: dict[str, Any]) -> str:
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False, default=repr)
    except (TypeError, ValueError, RecursionError):  # a circle, NaN, a key that is no text: each by itself then
        return json.dumps({name: _sound(value) for name, value in fields.items()}, ensure_ascii=False)


def _sound(value: object) -> object:
    """The value if it is JSON, else its `repr`."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value
