"""The jars of Spark's source and sink of Kafka, from Maven Central, each without its dependencies.

Not every release can be had there: this set works with PySpark 4.3.0 and a broker of 4.3.1.
"""

from __future__ import annotations

from support.maven import jar_of

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


def connector_jars() -> str:
    """The paths of the jars, as `spark.jars` takes them; skips the test where Maven cannot deliver them."""
    return ",".join(str(jar_of(coordinate)) for coordinate in JARS)
