"""`clicks.yaml` in plain PySpark: two streams joined.

Missing: dead letters, making the topic, a consumer group that shows the lag.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/plain/clicks.py localhost:9092
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def stream(spark: SparkSession, bootstrap: str, topic: str, time: str) -> DataFrame:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), f"ad STRING, {time} TIMESTAMP").alias("event"))
    return parsed.select("event.*").where(f"ad IS NOT NULL AND {time} IS NOT NULL").withWatermark(time, "1 hour")


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.appName("clicks").getOrCreate()
    shown = stream(spark, bootstrap, "impressions", "shown_at").alias("shown")
    clicked = stream(spark, bootstrap, "clicks", "clicked_at").alias("clicked")
    near = "shown.ad = clicked.ad AND clicked_at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES"
    seen = shown.join(clicked, F.expr(near)).select("shown.ad", "shown_at", "clicked_at")
    query = (
        seen.select(F.col("ad").alias("key"), F.to_json(F.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "seen-clicks")
        .option("checkpointLocation", ".checkpoints/clicks")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
