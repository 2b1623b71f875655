"""`captured-to-delta.yaml` in plain PySpark and delta-rs, each batch once.

Missing: dead letters, columns that are added later, waiting for another writer, merging of small files, the lag.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 captured_to_delta.py localhost:9092
"""

import sys

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SCHEMA = "id BIGINT, town STRING, op STRING, lsn BIGINT, number BIGINT"
PATH = "lake/orders"
NEWER = "(new.lsn > old.lsn OR (new.lsn = old.lsn AND new.number >= old.number))"


def write(rows: DataFrame, batch: int) -> None:
    newest = Window.partitionBy("id").orderBy(F.desc("lsn"), F.desc("number"))
    last = rows.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank").toArrow()
    if not DeltaTable.is_deltatable(PATH):
        DeltaTable.create(PATH, schema=last.schema)
    table = DeltaTable(PATH)
    done = table.transaction_version("captured-to-delta")
    if done is not None and batch <= done:
        return
    commit = CommitProperties(app_transactions=[Transaction("captured-to-delta", batch)])
    (
        table.merge(last, "old.id = new.id", source_alias="new", target_alias="old", commit_properties=commit)
        .when_matched_delete(f"new.op = 'd' AND {NEWER}")
        .when_matched_update_all(f"new.op <> 'd' AND {NEWER}")
        .when_not_matched_insert_all("new.op <> 'd'")
        .execute()
    )


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.appName("captured-to-delta").getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "order-changes")
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("change"))
    query = (
        parsed.select("change.*")
        .where("id IS NOT NULL")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", ".checkpoints/captured-to-delta")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
