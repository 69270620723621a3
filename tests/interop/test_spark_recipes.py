"""The recipes of kdump-spark(7) on a real cluster whose workers have no kdump of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import kdump as package
from support import manual, manual_text
from support.spark_cluster import SparkCluster, cluster

LOGS = Path(__file__).resolve().parents[2] / "fixtures" / "codecs"
BARE = {"PYSPARK_PYTHON": "/nonexistent/python", "SPARK_LOCAL_IP": "127.0.0.1"}
"""Without a recipe the workers would start this."""


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1, memory="1536m", environment=BARE) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `environment`, which has kdump, and its archive."""
    venv_pack = pytest.importorskip("venv_pack")
    directory = tmp_path_factory.mktemp("packed")
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    site = next((environment / "lib").iterdir()) / "site-packages"
    shutil.copytree(package.__path__[0], site / "kdump", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    # The libraries of the environment that runs the tests, as they are many; a real one has its own. venv-pack refuses
    # the path of a directory elsewhere.
    libraries = [path for path in sys.path if path.endswith("-packages")]
    (site / "libraries.pth").write_text(f"import sys; sys.path += {libraries!r}\n")
    program = environment / "bin" / "kdump"
    program.write_text(f"#!{environment}/bin/python\nfrom kdump.cli import main\nmain()\n")
    program.chmod(0o755)
    venv_pack.pack(prefix=str(environment), output=str(directory / "kdump.tar.gz"))
    return directory


def command_of(name: str, beginning: str) -> str:
    """A command of a recipe, in one line."""
    recipes = manual_text.parts(manual_text.section(manual.pages()[manual_text.SPARK], "COMMANDS ON A CLUSTER"), "Ss")
    (block,) = manual_text.literals(recipes[name])
    lines = "\n".join(block).replace("\\\n", " ").splitlines()
    return next(line for line in lines if beginning in line)


def run(command: str, place: Path, url: str) -> subprocess.CompletedProcess[str]:
    import pyspark

    given = command.replace("spark://master:7077", url).replace("/mnt/brokers/", str(LOGS))
    programs = os.pathsep.join((str(Path(pyspark.__path__[0]) / "bin"), sysconfig.get_path("scripts")))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON"))}
    return subprocess.run(
        ["sh", "-ec", given],
        cwd=place,
        env=environment | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


SUMMARY = "5 files, 30 batches, 650 records, 26170 of 26170 bytes in valid batches: 0 errors, 0 warnings, 0 info\n"


def test_a_packed_environment(workers: SparkCluster, place: Path) -> None:
    ran = run(command_of("A packed environment", "kdump verify"), place, workers.url)
    assert (ran.returncode, ran.stdout) == (0, SUMMARY), ran.stderr


def test_spark_submit(workers: SparkCluster, place: Path) -> None:
    for beginning in ("echo 'from", "echo 'main"):
        assert run(command_of("spark-submit", beginning), place, workers.url).returncode == 0
    ran = run(command_of("spark-submit", "spark-submit "), place, workers.url)
    assert (ran.returncode, ran.stdout) == (0, SUMMARY), ran.stderr


def test_without_the_recipe_the_workers_have_no_python(workers: SparkCluster, place: Path) -> None:
    command = re.sub(r"--spark-conf \S+", "", command_of("A packed environment", "kdump verify"))
    ran = run(f"PYSPARK_PYTHON=/nonexistent/python {command}", place, workers.url)
    assert ran.returncode == 3
    assert re.match(r"kdump: the worker \S+ cannot start the Python /nonexistent/python", ran.stderr), ran.stderr
