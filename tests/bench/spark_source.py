"""kdump on Spark against Spark's source of Kafka: `python -m tests.bench.spark_source [MIB]`.

A broker on loopback has one topic of four partitions with so many MiB; its log directory is what kdump reads. Both
sides run in one warm session of two slots, in turn; the second job of each counts. Prints seconds and ratios. `count`,
`noop` and `parquet`, by Spark's own writer, are of the data source: 2, 2 and 1.3 and more. `convert` is a conversion to
Parquet files on the same session, as `kdump convert --master` does it, against `parquet` of Spark's source: 3.5 and
more. Last comes what is in the files: both sides have the same rows.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kdump
from interop.clients import TOPICS
from interop.conftest import load_kafka
from kdump.spark import KdumpSource
from kdump.spark.session import spark_engine
from support.kafka_connector import connector_jars
from support.spark_session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WANTED = {"count": 2.0, "noop": 2.0, "parquet": 1.3, "convert": 3.5}
MASTER = "local[2]"
RECORD_BYTES = 140
ROUNDS = 2
# The options of the tests' sessions, without those that make a JVM start sooner and run slower.
JAVA_OPTIONS = "-Xss4m"


def run(frame: DataFrame, job: str, folder: Path) -> None:
    """A job of Spark's API."""
    if job == "count":
        assert frame.count() > 0
    elif job == "noop":
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.option("compression", "zstd").mode("overwrite").parquet(str(folder))


def convert(logs: str, folder: Path) -> None:
    """A conversion to Parquet files, on the session of this process."""
    shutil.rmtree(folder, ignore_errors=True)
    options = kdump.ConvertOptions(choice=kdump.convert.Choice(topics=("t",)), isolation="read-uncommitted")
    with spark_engine(MASTER) as engine:
        for each in kdump.convert_logs(kdump.discover([logs]), folder, options, engine=engine):
            if isinstance(each, Exception):
                raise each


def seconds(job: Callable[[], None]) -> float:
    """How long a job takes."""
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def produce(spark: SparkSession, bootstrap: str, mib: int) -> None:
    """Records of about 140 bytes with keys, in four partitions."""
    rows = spark.range(mib * (1 << 20) // RECORD_BYTES).selectExpr(
        "cast(concat('key-', id % 1000) as binary) as key",
        "cast(concat(sha2(cast(id as string), 256), sha1(cast(id as string))) as binary) as value",
        "'t' as topic",
        "cast(id % 4 as int) as partition",
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).save()


def compare(spark: SparkSession, bootstrap: str, logs: str, home: Path) -> bool:
    """Run the jobs of both sides in turn; whether every ratio is as wanted."""
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "t").load()
    ours = spark.read.format("kdump").option("subscribe", "t").load(logs)
    good = True
    for job, wanted in WANTED.items():
        spark_job = "parquet" if job == "convert" else job
        jobs: dict[str, Callable[[], None]] = {
            "kafka": partial(run, theirs, spark_job, home / "kafka"),
            "kdump": partial(convert, logs, home / "convert")
            if job == "convert"
            else partial(run, ours, job, home / "kdump"),
        }
        took = dict.fromkeys(jobs, 0.0)
        for _ in range(ROUNDS):
            for name, each in jobs.items():
                took[name] = seconds(each)
        ratio = took["kafka"] / took["kdump"]
        good = good and ratio >= wanted
        print(
            f"{job:8} kafka {took['kafka']:6.2f} s  kdump {took['kdump']:6.2f} s  {ratio:4.1f} x ({wanted})", flush=True
        )
    rows = {name: spark.read.parquet(str(home / name)).count() for name in ("kafka", "kdump", "convert")}
    sizes = {name: sum(file.stat().st_size for file in (home / name).rglob("*.parquet")) >> 20 for name in rows}
    print("rows    ", ", ".join(f"{name} {rows[name]:,} in {sizes[name]} MiB" for name in rows))
    return good and len(set(rows.values())) == 1


def main(mib: int = 256) -> int:
    """Run the jobs; 1 where a ratio is below what is wanted."""
    kafka = load_kafka()
    with tempfile.TemporaryDirectory(prefix="kdump-bench-") as folder:
        home = Path(folder)
        with kafka.kraft_broker(home / "broker", settings={"log.retention.ms": -1}) as broker:
            kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, "t:4:")
            settings = {"spark__driver__memory": "2g", "spark__driver__extraJavaOptions": JAVA_OPTIONS}
            spark = start_session(MASTER, spark__jars=connector_jars(), **settings)
            try:
                spark.dataSource.register(KdumpSource)
                produce(spark, broker.bootstrap, mib)
                print(f"load {os.getloadavg()[0]:.1f} before", flush=True)
                good = compare(spark, broker.bootstrap, str(broker.logs), home)
                print(f"load {os.getloadavg()[0]:.1f} after")
            finally:
                stop_session(spark)
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
