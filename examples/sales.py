"""A pipeline in Python: what each town has bought, from a topic of orders into a table of SQLite.

moldau pipeline run examples/sales.py
"""

from typing import TYPE_CHECKING

from moldau.pipelines import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pipeline = Pipeline("sales")
pipeline.source("orders", topic="orders", schema="town STRING, price DECIMAL(10, 2), pieces INT", required=["town"])


@pipeline.view
def paid(orders: "DataFrame") -> "DataFrame":
    """The orders that cost something; a gift is no sale."""
    return orders.where("price > 0")


@pipeline.view
def sales(paid: "DataFrame") -> "DataFrame":
    """A row for each town, which changes with each of its orders."""
    from pyspark.sql import functions as F

    return paid.groupBy("town").agg(F.sum(F.col("price") * F.col("pieces")).cast("double").alias("total"))


pipeline.sink("table", from_="sales", sqlite="sales.db", table="sales", key="town")
