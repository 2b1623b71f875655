"""`docs/configuration.md`, made from the tables of properties: `python -m moldau.core.configuration_page > ...`."""

import sys
from collections.abc import Iterator

from moldau.core.broker_keys import BROKER_KEYS, TABLES
from moldau.core.config import ConfigKey, UpdateMode
from moldau.core.unserved import HARMLESS, REFUSED

HEAD = """# The broker's properties

Made by `make docs` from `src/moldau/core/broker_keys.py` and `src/moldau/core/unserved.py`.

`moldau serve server.properties` takes Kafka's own names, and `--override name=value` wins over the file. Without a
properties file some defaults are others: the broker listens on localhost only, and `group.initial.rebalance.delay.ms`
is 0. Topics have properties of their own, with Kafka's names; what begins with `log.` here is mostly their default.

- **may be**: `1..` is 1 or more, `0..1` is between, `a/b` is one of these, `[a/b]` is a list of these between commas,
  `!` is anything but nothing.
- **change**: `restart` is read when the broker starts; `broker` can be set for one running broker, `cluster` for one
  or for all of them, with Kafka's `kafka-configs` or any admin client (KIP-226).
- A property that is **refused** would protect, limit or check something that is not served yet: the broker does not
  start with it, unless it has its default.
- A property with **no effect** is accepted, so that a properties file of Kafka starts here.
- A property that is not on this page is warned of, and ignored.
"""

_TABLE = """
## {title}

| property | type | default | may be | change | what it does |
|---|---|---|---|---|---|
"""

_UNKNOWN_KEYS = """
## Refused, and otherwise unknown

| property | why |
|---|---|
"""

_CHANGES = {
    UpdateMode.READ_ONLY: "restart",
    UpdateMode.PER_BROKER: "broker",
    UpdateMode.CLUSTER_WIDE: "cluster",
}


def render() -> str:
    """The page."""
    tables = (_TABLE.format(title=title) + "".join(_rows(table)) for title, table in TABLES.items())
    return HEAD + "".join(tables) + _UNKNOWN_KEYS + "".join(_unknown())


def _rows(table: str) -> Iterator[str]:
    for line in table.strip().splitlines():
        name, _type, _default, _mode, rule = line.partition(" | ")[0].split(" ")
        key = BROKER_KEYS[name]
        cells = (f"`{name}`", key.type.name, _code(key.default), _rule(rule), _CHANGES[key.mode], _meaning(key))
        yield f"| {' | '.join(cells)} |\n"


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _rule(rule: str) -> str:
    return "" if rule == "*" else f"`{rule}`"


def _meaning(key: ConfigKey) -> str:
    if key.name in REFUSED:
        return f"{key.doc} **Refused**: {REFUSED[key.name].reason}."
    if key.name in HARMLESS:
        return f"{key.doc} **No effect**: {HARMLESS[key.name]}."
    return key.doc


def _unknown() -> Iterator[str]:
    return (f"| `{name}` | {refusal.reason} |\n" for name, refusal in REFUSED.items() if name not in BROKER_KEYS)


if __name__ == "__main__":
    sys.stdout.write(render())
