"""`visits-by-hour.yaml` in plain PySpark, each batch once: a table of batches beside the rows, in one transaction.

Missing: dead letters with reasons, a consumer group that shows the lag, waiting for a database that is locked, a stop
that waits for the batch at hand.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 examples/plain/visits_by_hour.py localhost:9092
"""

import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def write(rows: DataFrame, batch: int) -> None:
    found = [(row.page, row.hour.isoformat(), row.visits) for row in rows.collect()]
    with closing(sqlite3.connect("visits.db")) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS by_hour (page, hour, visits, PRIMARY KEY (page, hour))")
        database.execute("CREATE TABLE IF NOT EXISTS batches (name PRIMARY KEY, batch)")
        last = database.execute("SELECT batch FROM batches WHERE name = 'by_hour'").fetchone()
        if last is not None and batch <= last[0]:
            return
        database.executemany("INSERT OR REPLACE INTO by_hour VALUES (?, ?, ?)", found)
        database.execute("INSERT OR REPLACE INTO batches VALUES ('by_hour', ?)", (batch,))


def main(bootstrap: str) -> None:
    spark = SparkSession.builder.appName("visits-by-hour").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "page-views")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), "page STRING, at TIMESTAMP").alias("visit"))
    visits = parsed.select("visit.*").where("page IS NOT NULL AND at IS NOT NULL").withWatermark("at", "2 hours")
    hours = (
        visits.groupBy("page", F.window("at", "1 hour"))
        .agg(F.count("*").alias("visits"))
        .select("page", F.col("window.start").alias("hour"), "visits")
    )
    query = (
        hours.writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", ".checkpoints/visits-by-hour")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
