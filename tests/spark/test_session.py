"""The session that the tests of Spark share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_works_with_this_python_in_two_slots(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.defaultParallelism == 2
    assert context.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
