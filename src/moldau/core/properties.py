"""Java's `.properties` text, the form of `server.properties`."""

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
# Not compiled here: a broker that starts without a file does not pay for them.
_NATURAL_LINE = r"\r\n|\r|\n"
_ESCAPE = r"\\(?:u([0-9a-fA-F]{4})|(.?))"
_KEY = r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?"


def parse_properties(text: str) -> dict[str, str]:
    """Values by name; the last one of equal names wins. Comments, continued lines, escapes; `=`, `:` or a blank between
    name and value, as java.util.Properties reads it."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(_KEY, line, re.DOTALL)
        if match:
            properties[_unescape(match[1])] = _unescape(line[match.end() :])
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for natural in re.split(_NATURAL_LINE, text):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        if _is_continued(line):
            pending = line[:-1]
        else:
            lines.append(line)
            pending = ""
    if pending:
        lines.append(pending)
    return lines


def _is_continued(line: str) -> bool:
    """Whether a line goes on: it ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    return re.sub(_ESCAPE, _unescape_one, text, flags=re.DOTALL) if "\\" in text else text


def _unescape_one(match: re.Match[str]) -> str:
    code, char = match[1], match[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(char, char)
