"""Columns of a captured table that no change tells of: one that has another name than when the last run began, and one
that has come with a default. Rows that were captured before do not follow; a run that begins says so.

PostgreSQL numbers the columns of a table, and never again the same: that tells a new name from a new column.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines.sources.postgres_slots import Feed

if TYPE_CHECKING:
    import psycopg


def told(feed: Feed, database: "psycopg.Connection[Any]") -> Iterator[str]:
    """Lines about columns since the last time; what is there now is noted for the next."""
    note = feed.noted / f"columns of {feed.source}"
    table = feed.facts(database).oid
    found = database.execute(
        "SELECT attnum::text, attname::text, atthasdef FROM pg_attribute "
        "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        (table,),
    ).fetchall()
    now = {number: name for number, name, _ in found}
    known: dict[str, Any] = json.loads(note.read_text("utf-8")) if note.exists() else {}
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"table": table, "columns": now}), encoding="utf-8")
    if known.get("table") != table:
        return
    for number, name, has_default in found:
        before = known["columns"].get(number)
        if before is not None and before != name:
            words = f"rows of before have it under the old name (in a view: `{name} AS {before}`)"
            yield f"{feed.source}: the column {before!r} of {feed.table} is called {name!r} now: {words}"
        elif before is None and has_default:
            words = f"rows of before lack it until they are changed (UPDATE {feed.table} SET {name} = {name})"
            yield f"{feed.source}: the column {name!r} of {feed.table} has come with a default: {words}"
