"""Dead letters: records that cannot be decoded, in the pipeline's dead-letter topic, with headers that say whence and
why.

`moldau pipeline redrive` reads the same headers (`redrive.py`). Names and texts, all in UTF-8: `moldau.dlq.pipeline`,
`.source`, `.topic`, `.partition`, `.offset`, `.timestamp` (milliseconds), `.reason`; and `.attempts`, the number of
times that the record has been sent back. Dead letters of a program's consumer have the same
(`moldau.client.dead_letters`).
"""

from typing import TYPE_CHECKING

from moldau.client.dead_letters import PREFIX, REASON_MAX
from moldau.pipelines.file.spec import SourceSpec
from moldau.pipelines.kinds import Context
from moldau.pipelines.topics import cluster_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["PREFIX", "attach", "letters"]


def attach(source: SourceSpec, bad: "DataFrame", context: Context) -> "DataStreamWriter":
    """A writer for a source's bad records, complete except for name, trigger and checkpoint."""
    topic = context.pipeline.dead_letters
    if topic is None:
        raise ValueError(f"{context.pipeline.name} has no topic for dead letters: a bad record ends the run")
    cluster = cluster_of(context.pipeline)
    cluster.create(topic, -1, -1, {})
    writer = letters(source, bad, context).writeStream.format("kafka").option("topic", topic)
    return writer.options(**cluster.spark_options())


def letters(source: SourceSpec, bad: "DataFrame", context: Context) -> "DataFrame":
    """Key, value and headers of each dead letter."""
    from pyspark.sql import functions as F

    said = {
        "pipeline": F.lit(context.pipeline.name),
        "source": F.lit(source.name),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.unix_millis("timestamp"),
        "reason": F.substring("reason", 1, REASON_MAX),
    }
    added = F.array(*(_header(PREFIX + name, value) for name, value in said.items()))
    headers = added
    if "headers" in bad.columns:
        headers = F.when(F.col("headers").isNull(), added).otherwise(F.concat("headers", added))
    return bad.select("key", "value", headers.alias("headers"))


def _header(name: str, value: "Column") -> "Column":
    from pyspark.sql import functions as F

    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
