"""What has to be installed for Spark: PySpark, its packages for Connect, Java."""

import importlib.util
import os
import re
import shutil
import subprocess
from importlib import metadata
from typing import Final

from kdump.errors import KdumpError

PYSPARK: Final = (4, 2)
JAVA: Final = 17
_INSTALL: Final = "pip install 'kdump[spark]'"
_CONNECT: Final = ("pandas", "pyarrow", "grpc", "grpc_status", "google.protobuf", "zstandard")
"""The modules that Spark Connect needs beside PySpark."""
_JAVA_SECONDS: Final = 30


def check_pyspark() -> None:
    """Raises KdumpError where PySpark is not installed, or is too old."""
    if importlib.util.find_spec("pyspark") is None:
        raise KdumpError(f"Spark needs PySpark {_text(PYSPARK)} or later, which is not installed: {_INSTALL}")
    version = _pyspark_version()
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < PYSPARK:
        raise KdumpError(f"Spark needs PySpark {_text(PYSPARK)} or later, and {version} is installed: {_INSTALL}")


def _pyspark_version() -> str:
    for name in ("pyspark", "pyspark-connect", "pyspark-client"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    from pyspark import __version__ as version  # of a Spark distribution, which has no metadata

    return version


def check_connect() -> None:
    """Raises KdumpError where a package that Spark Connect needs is not installed."""
    missing = [name for name in _CONNECT if not _is_there(name)]
    if missing:
        raise KdumpError(
            f"Spark Connect needs the Python packages that 'pyspark[connect]' brings, and {missing[0]} is not here:"
            " pip install 'kdump[spark]' 'pyspark[connect]'"
        )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package above
        return False


def java_problem() -> str | None:
    """Why no Java of this machine can run Spark, as a sentence; None where one can."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return f"Spark needs Java {JAVA} or later, and no java is on the PATH; install one, or set JAVA_HOME"
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_JAVA_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return f"Spark needs Java {JAVA} or later, and {java} cannot be run; set JAVA_HOME to one that can"
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found is None:
        return f"Spark needs Java {JAVA} or later, and {java} is not Java; set JAVA_HOME"
    if int(found[1]) < JAVA:
        return f"Spark needs Java {JAVA} or later, and {java} is {found[1]}; set JAVA_HOME to a later one"
    return None


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
