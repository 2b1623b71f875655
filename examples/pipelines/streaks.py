"""Own state: the longest streak of paid orders of each customer, kept by a function of Python."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.pipelines import Pipeline

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # no type information
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

pipeline = Pipeline("streaks")
pipeline.source("orders", topic="orders", schema="customer STRING, paid BOOLEAN", required=["customer", "paid"])


def longest(key: tuple[Any, ...], batches: "Iterator[pd.DataFrame]", state: "GroupState") -> "Iterator[pd.DataFrame]":
    """The longest streak so far; the state is the streak that goes on, and the longest."""
    import pandas as pd

    now, best = state.get if state.exists else (0, 0)
    for batch in batches:
        for paid in batch["paid"]:
            now = now + 1 if paid else 0
            best = max(best, now)
    state.update((now, best))
    yield pd.DataFrame({"customer": [key[0]], "streak": [best]})


@pipeline.view
def streaks(orders: "DataFrame") -> "DataFrame":
    """A row for each customer of a batch."""
    by_customer = orders.groupBy("customer")
    columns = "customer STRING, streak INT"
    return by_customer.applyInPandasWithState(longest, columns, "now INT, best INT", "update", "NoTimeout")


pipeline.sink("streaks", from_="streaks", topic="streaks", key="customer", create=True)
