"""A server of Spark Connect on loopback, from the PySpark package, as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.spark_session import SETTINGS, need_spark, python_environment

START_SECONDS = 120
STOP_SECONDS = 20
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(directory: Path, master: str = "local[2]") -> Iterator[str]:
    """The URL of a server, `sc://…`, which ends with the block. Skips the test where Spark cannot run."""
    need_spark()
    import pyspark

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = SETTINGS | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    program = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = directory / "connect.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(program), "--master", master, "--class", CLASS, *conf, "spark-internal"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **python_environment()},
            start_new_session=True,
        )
    try:
        _wait(server, port, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(STOP_SECONDS)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the Connect server did not start: {log.read_text(errors='replace')[-2000:]}")
