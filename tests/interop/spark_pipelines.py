"""What a program of Spark does with the disks of a cluster: the recipes of kdump-spark(7), which tests run as they are.

`disks` are the log directories of brokers, or directories above them; the driver and every worker must see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def to_parquet(spark: SparkSession, disks: list[str], folder: str) -> None:
    reader = spark.read.format("kdump").option("includeHeaders", "true")
    records = reader.load(disks)
    records.write.partitionBy("topic").parquet(folder)


def to_a_cluster(spark: SparkSession, disks: list[str], topic: str, servers: str) -> None:
    reader = spark.read.format("kdump").option("includeHeaders", "true")
    records = reader.option("subscribe", topic).load(disks)
    records = records.repartition("partition")
    records = records.sortWithinPartitions("partition", "offset")
    columns = ["key", "value", "headers", "topic", "partition"]
    writer = records.select(columns).write.format("kafka")
    writer.option("kafka.bootstrap.servers", servers).save()


def to_logs(spark: SparkSession, disks: list[str], directory: str) -> None:
    reader = spark.read.format("kdump").option("includeHeaders", "true")
    records = reader.load(disks).repartition("topic", "partition")
    order = ["topic", "partition", "offset"]
    records = records.sortWithinPartitions(*order)
    writer = records.write.format("kdump").mode("append")
    writer.option("codec", "zstd").save(directory)


def newest_of_each_partition(spark: SparkSession, directory: str) -> DataFrame:
    spark.sql(f"""
        create or replace temporary view orders using kdump
        options (path '{directory}', subscribe 'orders')
    """)
    return spark.sql("""
        select partition, count(*) as records, max(timestamp) as newest
        from orders where value is not null
        group by partition order by partition
    """)


def unfinished_transactions(spark: SparkSession, disks: list[str]) -> DataFrame:
    reader = spark.read.format("kdump").option("table", "transactions")
    found = reader.load(disks).where("outcome in ('open', 'undecided')")
    return found.orderBy("topic", "partition", "first_offset")


def largest_producers(spark: SparkSession, disks: list[str]) -> DataFrame:
    reader = spark.read.format("kdump").option("table", "producers")
    groups = reader.load(disks).groupBy("producer_id")
    sums = groups.sum("records", "bytes")
    return sums.orderBy("sum(bytes)", ascending=False)


def new_findings(spark: SparkSession, disks: list[str], folder: str, last: str | None) -> DataFrame:
    reader = spark.read.format("kdump").option("table", "findings")
    reader.load(disks).write.parquet(folder)
    found = spark.read.parquet(folder)
    if last is None:
        return found
    before = spark.read.parquet(last)
    return found.join(before, ["path", "identity"], "left_anti")


def append_new(table: str, rows: pa.Table, key: list[str]) -> pa.Table:
    from deltalake import DeltaTable, write_deltalake

    if DeltaTable.is_deltatable(table):
        known = DeltaTable(table).to_pyarrow_table(columns=key)
        rows = rows.join(known, key, join_type="left anti")
    write_deltalake(table, rows, mode="append")
    return rows


def scrub(spark: SparkSession, disks: list[str], table: str, night: int, nights: int) -> pa.Table:
    import zlib

    import kdump
    from kdump.spark import read

    found = kdump.discover(disks)
    logs = (each for each in found if isinstance(each, kdump.Partition))
    paths = [log.path for log in logs]
    numbers = (zlib.crc32(path.encode()) % nights for path in paths)
    pairs = zip(paths, numbers, strict=True)
    share = [path for path, number in pairs if number == night]
    rows = read(spark, share, table="findings").toArrow()
    return append_new(table, rows, ["path", "identity"])


def new_divergences(spark: SparkSession, fingerprints: str, table: str) -> pa.Table:
    from kdump.spark import read

    found = read(spark, fingerprints, table="comparisons")
    found = found.where("verdict = 'diverged'").toArrow()
    key = ["topic", "partition", "left", "right", "differs"]
    return append_new(table, found, key)


def follow(spark: SparkSession, directory: str, folder: str, checkpoint: str) -> None:
    stream = spark.readStream.format("kdump")
    stream = stream.option("startingOffsets", "earliest")
    records = stream.load(directory)
    writer = records.writeStream.format("parquet").option("path", folder)
    writer = writer.option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
