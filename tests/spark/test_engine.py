"""The commands on two slots of Spark in this process say what they say without Spark."""

from __future__ import annotations

import gc
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Command
from kdump.errors import KdumpError
from kdump.spark.session import spark_engine
from kdump.spark.worker_process import begin_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def test_verify_and_stat_say_the_same(spark: SparkSession, kdump: Command) -> None:
    for name in ("segments", "transactions", "log-directory"):
        shutil.copytree(FIXTURES / name, kdump.directory / name)
    log = max((kdump.directory / "segments").rglob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    for arguments in (("verify", "--format", "json"), ("stat", "--format", "json", "--by", "partition"), ("recover",)):
        alone, cluster = (
            kdump.inside(*arguments, *how, ".") for how in (("--jobs", "1"), ("--master", spark.sparkContext.master))
        )
        assert (cluster.status, cluster.problems) == (alone.status, alone.problems)
        assert re.sub(r'"seconds": ?[\d.]+', "", cluster.text) == re.sub(r'"seconds": ?[\d.]+', "", alone.text)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    texts = [str(jobs.apply(number).description()) for number in range(jobs.size())]
    assert any(re.search(r"kdump: .*log-directory/\S+ to .*transactions/\S+, \d+ paths", text) for text in texts), texts


def test_another_master_than_the_one_of_the_session_is_refused(spark: SparkSession) -> None:
    with (
        pytest.raises(KdumpError, match=r"has a Spark session already, on local\[2\] and not on local\[3\]"),
        spark_engine("local[3]"),
    ):
        pass
    assert spark.sparkContext.parallelize([1], 1).collect() == [1]


def test_modules_are_no_garbage_of_each_task(spark: SparkSession) -> None:
    """Spark collects garbage after each task of a Python process, which would walk all modules each time."""
    tasks = spark.sparkContext.parallelize(range(6), 6)
    assert max(tasks.map(lambda _: (begin_task(), gc.get_freeze_count())[1]).collect()) > 10_000
    before = gc.get_freeze_count()
    for _ in range(4):
        begin_task()
    assert gc.get_freeze_count() == before  # this is no process of Spark
