"""Each order once, however often it is sent within an hour."""

from typing import TYPE_CHECKING

from moldau.pipelines import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pipeline = Pipeline("once")
pipeline.source("orders", topic="orders", schema="id BIGINT, at TIMESTAMP", watermark="at 1 hour")


@pipeline.view
def once(orders: "DataFrame") -> "DataFrame":
    """The first record of each order."""
    return orders.dropDuplicatesWithinWatermark(["id"])


pipeline.sink("orders", from_="once", topic="orders-once", key="id", create=True)
