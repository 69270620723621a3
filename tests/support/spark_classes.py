"""An archive of the classes that a session of Spark loads (JEP 350), for a run that starts many JVMs.

`python tests/support/spark_classes.py ARCHIVE` makes it where it is not there, and prints the options for
SPARK_SUBMIT_OPTS. A JVM that it does not fit starts without it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM of the tests lives for seconds: to compile for speed takes it longer than to be slow."""
SESSION = """
from pyspark import SparkContext
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(name, "127.0.0.1")
spark = builder.getOrCreate()
assert spark.range(10).selectExpr("sum(id)").collect()
spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()  # the JVM writes the archive at its end
"""


def main(archive: Path) -> None:
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off"
        with contextlib.suppress(subprocess.SubprocessError):  # a run without it only takes longer
            subprocess.run(
                [sys.executable, "-c", SESSION],
                env={**os.environ, "SPARK_SUBMIT_OPTS": options},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=600,
                check=True,
            )
    print(JAVA_OPTIONS, *([f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"] if archive.exists() else []))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
