"""Texts without the secrets that addresses carry: errors are shown, logged and kept in files that others may read."""

import re

HIDDEN = "***"

_USER = re.compile(r"(?<=://)[^\s'\"]*@")
"""User and password, up to the last @ of the address: a password that was not escaped may hold any character."""
_QUERY = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"?]*\?)[^\s'\")]*")
_SETTING = re.compile(
    r"((?:password|passwd|secret|token|api[_.-]?key|jaas\.config|user\.info)[\"']?\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s,;&]+)",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """`text` with the users, passwords and queries of addresses hidden, and values set as a password."""
    text = _QUERY.sub(rf"\1{HIDDEN}", _USER.sub(f"{HIDDEN}@", text))
    return _SETTING.sub(rf"\1{HIDDEN}", text)
