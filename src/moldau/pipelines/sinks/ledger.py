"""The table that remembers which batches are in a database, written in the transaction of their rows.

One row for each query and checkpoint, with the number of its last batch. The entry is made first: it locks the row, so
that of two writers of one batch (a driver that was thought dead, and its successor) the second waits and then skips.
"""

from moldau.pipelines.sinks.batches import Batch, Owner

TABLE = "moldau_batches"

CREATE = """CREATE TABLE IF NOT EXISTS {table} (
  query text NOT NULL,
  checkpoint text NOT NULL,
  batch bigint NOT NULL,
  written_at {moment} NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (query, checkpoint))"""

ENTER = """INSERT INTO {table} AS ledger (query, checkpoint, batch) VALUES ({mark}, {mark}, {mark})
ON CONFLICT (query, checkpoint) DO UPDATE SET batch = excluded.batch, written_at = CURRENT_TIMESTAMP
WHERE ledger.batch < excluded.batch"""
"""SQL that changes one row, or none if the batch is there. PostgreSQL and SQLite read it alike."""

LAST = "SELECT batch FROM {table} WHERE query = {mark} AND checkpoint = {mark}"


def refuse_rollback(last: int, batch: Batch, sink: Owner) -> None:
    """Refuse a batch before the last one: it can only be planned anew, with other rows, and to skip it would lose
    them."""
    if batch.number < last:
        raise sink.error(
            f"its table has batch {last}, but the checkpoint is back at batch {batch.number}: it is an older copy",
            "bring the newer checkpoint back, or begin anew with `moldau pipeline reset`",
        )
