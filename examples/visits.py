"""The pipeline of visits.yaml in Python: visits of organisations to a website, by day, with late ones counted in.

moldau pipeline run examples/visits.py
"""

from typing import TYPE_CHECKING

from moldau.pipelines import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pipeline = Pipeline("visits")
pipeline.source(
    "visits",
    topic="page-views",
    format="json",
    schema="organisation STRING, page STRING, at TIMESTAMP",
    required=["organisation", "at"],
    watermark="at 7 days",
)


@pipeline.view
def counts(visits: "DataFrame") -> "DataFrame":
    """A row for each organisation and day; it changes when a visit of that day comes, late or not."""
    from pyspark.sql import functions as F

    by_day = visits.groupBy("organisation", F.window("at", "1 day")).agg(F.count("*").alias("visits"))
    return by_day.select("organisation", F.date_format("window.start", "yyyy-MM-dd").alias("day"), "visits")


pipeline.sink(
    "visits-by-day",
    from_="counts",
    topic="visits-by-day",
    key=["organisation", "day"],
    newest_by="none",  # a day of an organisation comes once in a batch
    create={"partitions": 3, "cleanup.policy": "compact"},
)
pipeline.sink(
    "table", from_="counts", sqlite="visits.db", table="visits_by_day", key=["organisation", "day"], newest_by="none"
)
