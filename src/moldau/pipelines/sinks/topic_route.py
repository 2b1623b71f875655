"""Routes: the topic of each row, made of its columns: `route: orders-{country}`.

A row whose columns make no name that a topic may have, or are NULL, goes to the sink's `topic`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.pipelines.file.options import Option, text
from moldau.pipelines.sinks.batches import Owner
from moldau.pipelines.sinks.order import tasks_in_order
from moldau.pipelines.topics import Cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMN = re.compile(r"\{([^{}]+)\}")
TOPIC_NAME = r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}$"
"""A name that a topic may have, by Kafka's rule."""
TOPICS_MAX = 1000
"""Topics that one batch may go to: more are a mistake in the column rather than a route."""


def template(value: Any) -> str:
    """The text of a route, which names a column."""
    words = text(value)
    if not COLUMN.search(words) or set("{}") & set(COLUMN.sub("", words)):
        raise ValueError("a topic with a column in it, such as `orders-{country}`")
    return words


OPTION = Option(
    "route",
    template,
    "the topic of each row by its columns, such as `orders-{country}`; rows for which it is no name go to `topic`",
)


def columns(route: str) -> list[str]:
    return [found[1].strip() for found in COLUMN.finditer(route)]


def topic_of_row(route: str, otherwise: str) -> "Column":
    """The topic of a row."""
    from pyspark.sql import functions as F

    parts: list[Column] = []
    place = 0
    for found in COLUMN.finditer(route):
        parts.extend([F.lit(route[place : found.start()]), F.col(f"`{found[1].strip()}`").cast("string")])
        place = found.end()
    name = F.concat(*parts, F.lit(route[place:]))
    return F.when(name.rlike(TOPIC_NAME), name).otherwise(F.lit(otherwise))


@dataclass(frozen=True, slots=True)
class Routed:
    """The function for `foreachBatch` that writes each record to its own topic, at least once. `create`: settings of
    topics that are not there, None if they must be."""

    sink: Owner
    cluster: Cluster
    create: tuple[int, int, Mapping[str, str]] | None
    ordered: bool

    def __call__(self, rows: "DataFrame", number: int) -> None:  # noqa: ARG002 - Spark's
        kept = rows.persist()
        try:
            found = kept.select("topic").distinct().limit(TOPICS_MAX + 1).collect()
            self._make_sure([row["topic"] for row in found])
            made = tasks_in_order(kept.repartition("topic", "key")) if self.ordered else kept
            made.write.format("kafka").options(**self.cluster.spark_options()).save()
        finally:
            kept.unpersist()

    def _make_sure(self, topics: Sequence[str]) -> None:
        if len(topics) > TOPICS_MAX:
            raise self.sink.error(
                f"its rows of one batch go to more than {TOPICS_MAX} topics: is that the right column?"
            )
        missing = sorted(set(topics) - set(self.cluster.topics())) if topics else []
        for topic in missing:
            if self.create is None:
                raise self.sink.error(f"its route leads to {topic!r}, and there is no such topic", "`create: true`")
            partitions, replicas, configs = self.create
            self.cluster.create(topic, partitions, replicas, configs)
