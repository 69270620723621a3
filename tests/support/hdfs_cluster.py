"""An HDFS on loopback: the mini cluster of Hadoop from Maven Central, beside the Hadoop that PySpark brings."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.maven import jar_of
from support.spark_session import need_spark

JAR = "org.apache.hadoop:hadoop-client-minicluster"
PROGRAM = Path(__file__).parents[1] / "interop" / "HdfsCluster.java"
SECONDS = 400


class HdfsCluster(NamedTuple):
    """`port` is that of hdfs://, `http_port` that of webhdfs://."""

    port: int
    http_port: int

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def web_url(self) -> str:
        return f"webhdfs://127.0.0.1:{self.http_port}"


@contextmanager
def hdfs_cluster(place: Path, *folders: Path) -> Iterator[HdfsCluster]:
    """A cluster with these folders in its root. Skips the test where it cannot be had."""
    need_spark()
    import pyspark

    jars = Path(pyspark.__path__[0]) / "jars"
    (api,) = jars.glob("hadoop-client-api-*.jar")
    release = api.stem.rpartition("-")[2]
    path = f"{jar_of(f'{JAR}:{release}')}:{jars}/*"
    place.mkdir(parents=True, exist_ok=True)
    command = ["java", "-Xmx512m", "-cp", path, str(PROGRAM), str(place / "dfs"), *map(str, folders)]
    with (
        (place / "errors").open("wb") as errors,
        subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        assert process.stdout is not None
        try:
            ready = next((line for line in process.stdout if line.startswith(b"READY ")), None)
            assert ready is not None, (place / "errors").read_text(errors="replace")[-3000:]
            timer.cancel()
            _, port, http_port = ready.split()
            yield HdfsCluster(int(port), int(http_port))
        finally:
            timer.cancel()
            process.kill()
