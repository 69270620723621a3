"""The data source against Spark's source of Kafka: `python -m tests.bench.spark_source [MIB]`.

A broker on loopback has one topic of four partitions with so many MiB; its log directory is what kdump reads. Both
sources run in one warm session of two slots, in turn; the second job of each counts. Prints seconds and ratios:
`count` and `noop` are to be 2 and more, `parquet`, by Spark's own writer, 1.3 and more.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop.clients import TOPICS
from interop.conftest import load_kafka
from support.kafka_connector import connector_jars
from support.spark_session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WANTED = {"count": 2.0, "noop": 2.0, "parquet": 1.3}
RECORD_BYTES = 140
ROUNDS = 2


def seconds(frame: DataFrame, job: str, folder: Path) -> float:
    """How long a job takes."""
    begin = time.perf_counter()
    if job == "count":
        assert frame.count() > 0
    elif job == "noop":
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.option("compression", "zstd").mode("overwrite").parquet(str(folder))
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


def main(mib: int = 256) -> int:
    """Run the jobs; 1 where a ratio is below what is wanted."""
    kafka, failed = load_kafka(), False
    with tempfile.TemporaryDirectory(prefix="kdump-bench-") as folder:
        home = Path(folder)
        with kafka.kraft_broker(home / "broker", settings={"log.retention.ms": -1}) as broker:
            kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, "t:4:")
            spark = start_session(spark__jars=connector_jars(), spark__driver__memory="2g")
            try:
                from kdump.spark import KdumpSource

                spark.dataSource.register(KdumpSource)
                produce(spark, broker.bootstrap, mib)
                theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
                sources = {
                    "kafka": theirs.option("subscribe", "t").load(),
                    "kdump": spark.read.format("kdump").option("subscribe", "t").load(str(broker.logs)),
                }
                for job, wanted in WANTED.items():
                    took = dict.fromkeys(sources, 0.0)
                    for _ in range(ROUNDS):
                        for name, frame in sources.items():
                            took[name] = seconds(frame, job, home / name)
                    ratio = took["kafka"] / took["kdump"]
                    failed = failed or ratio < wanted
                    print(
                        f"{job:8} kafka {took['kafka']:6.2f} s  kdump {took['kdump']:6.2f} s  {ratio:4.1f} x ({wanted})"
                    )
            finally:
                stop_session(spark)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
