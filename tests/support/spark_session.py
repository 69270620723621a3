"""One small Spark session for the tests of a folder, and the reason where there can be none.

A folder's conftest.py imports the fixture: `from support.spark_session import spark  # noqa: F401`. The session works
in two slots of one JVM on loopback, in UTC, without a page of its own. The JVM ends with the folder's last test.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import spark_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
JAVA_OPTIONS = os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.JAVA_OPTIONS)
"""Of every JVM. Drivers find them in the environment, where `.ci/run` adds an archive of classes."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-Xss4m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


@cache
def missing() -> str | None:
    """Why Spark cannot run here; None where it can."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pandas", "pyarrow")):
        return "pyspark, pandas or pyarrow is not installed"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return f"Spark needs Java {JAVA}, and java is not on the PATH"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"Spark needs Java {JAVA}: {error}"
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None or int(found[1]) < JAVA:
        return f"Spark needs Java {JAVA}, and this is {told.splitlines()[0]}"
    return None


def need_spark() -> None:
    """Skip the test, with the reason, where Spark cannot run."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


def python_environment() -> dict[str, str]:
    """What the environment of a JVM needs, so that its Python is this one and its sockets are on loopback.

    The working directory may be a checkout, whose source folder is no installed kdump.
    """
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def start_session(master: str = "local[2]", **settings: str) -> SparkSession:
    """A session of its own; the settings' names are written with `__` for a dot."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise RuntimeError("this process has a session already, and would get that one")
    os.environ.update(python_environment())
    builder = SparkSession.builder.master(master).appName("kdump tests")
    for name, value in (SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_session(session: SparkSession) -> None:
    """Stop the session, and end the JVM, which would live as long as this process."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two slots in this process."""
    need_spark()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in python_environment().items():
            patch.setenv(name, value)
        session = start_session(spark__sql__warehouse__dir=str(tmp_path_factory.mktemp("warehouse")))
        try:
            yield session
        finally:
            stop_session(session)
