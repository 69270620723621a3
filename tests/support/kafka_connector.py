"""The jars of Spark's source and sink of Kafka, from Maven Central, each without its dependencies.

Not every release can be had there: this set works with PySpark 4.3.0 and a broker of 4.3.1.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
TIMEOUT_S = 300


def connector_jars() -> str:
    """The paths of the jars, as `spark.jars` takes them; skips the test where Maven cannot deliver them."""
    paths = []
    for coordinate in JARS:
        group, artifact, version = coordinate.split(":")
        folder = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / artifact / version
        path = folder / f"{artifact}-{version}.jar"
        if not path.exists():
            fetch = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={coordinate}", "-Dtransitive=false"]
            try:
                subprocess.run(fetch, check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"Maven cannot deliver {coordinate}: {error}")
        paths.append(str(path))
    return ",".join(paths)
