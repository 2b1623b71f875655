"""`checked.yaml` in plain PySpark: whole orders to one topic, the others to another with the reason.

Missing: reasons that name the field and its value, sending dead letters back, a consumer group that shows the lag.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/plain/checked.py localhost:9092
"""

import sys

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id BIGINT, at TIMESTAMP, amount DECIMAL(10, 2), _bad STRING"


def header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.appName("checked").getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    parsed = records.withColumn("order", F.from_json(F.col("value").cast("string"), SCHEMA, options))
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(F.col("order._bad").isNotNull(), "no JSON of the schema")
        .when(F.col("order.id").isNull(), "id is missing")
        .when(F.col("order.at").isNull(), "at is missing")
        .when(F.col("order.amount").isNull(), "amount is missing")
    )
    judged = parsed.withColumn("reason", reason)
    order = F.struct("order.id", "order.at", "order.amount")
    whole = judged.where("reason IS NULL").select(
        F.lit("checked-orders").alias("topic"),
        F.col("order.id").cast("string").cast("binary").alias("key"),
        F.to_json(order).cast("binary").alias("value"),
        F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
    )
    bad = judged.where("reason IS NOT NULL").select(
        F.lit("bad-orders").alias("topic"),
        "key",
        "value",
        F.array(
            header("reason", F.col("reason")),
            header("topic", F.col("topic")),
            header("partition", F.col("partition")),
            header("offset", F.col("offset")),
        ).alias("headers"),
    )
    query = (
        whole.unionByName(bad)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .option("checkpointLocation", ".checkpoints/checked")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
