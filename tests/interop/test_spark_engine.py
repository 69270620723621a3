"""The engine of Spark on real clusters: the same answer as in this process, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import kdump as package
from conftest import Command
from kdump.engine.protocol import Engine, Serial, TaskSizes
from kdump.errors import KdumpError
from kdump.recover.plan import RecoverOptions
from kdump.recover.planner import plan_recovery
from kdump.spark import engine as engine_module
from kdump.spark.builds import build_name, digest_of
from kdump.spark.engine import SparkEngine
from kdump.spark.session import spark_engine
from kdump.stat.stat import stat_logs
from kdump.stat.values import StatOptions
from kdump.storage.discovery import discover
from kdump.verify.verify import VerifyOptions, verify_logs
from support import damage, damage_partition
from support.command_runs import open_logs
from support.laws import of_the_day
from support.spark_cluster import EXECUTOR_SETTINGS, SparkCluster, cluster, descendants, is_alive
from support.spark_connect import connect_server
from support.spark_jobs import values
from support.spark_session import need_spark
from support.waits import until

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NOW_MS = 1_900_000_000_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every partition of the fixtures, and a damaged copy of each."""
    place = tmp_path_factory.mktemp("logs")
    rng = random.Random(16)
    for case in sorted(path for path in FIXTURES.iterdir() if (path / "case.toml").exists()):
        for times in range(2):
            copy = shutil.copytree(
                case, place / f"{case.name}-{times}", ignore=shutil.ignore_patterns("expected", "case.toml")
            )
            for partition in sorted(path for path in copy.iterdir() if path.is_dir()):
                for _ in range(times):
                    with contextlib.suppress(damage.NotApplicable, IndexError):
                        damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), partition, rng)
    return place


def answers(place: Path, engine: Engine) -> Iterator[tuple[str, list[Any]]]:
    """What every command finds out below a directory."""

    def found() -> Iterator[Any]:
        return discover([str(place)])

    yield "verify", [values(one) for one in verify_logs(found(), VerifyOptions(now_ms=NOW_MS), engine=engine)]
    yield (
        "stat --deep",
        [values(one) for one in stat_logs(found(), StatOptions(deep=True, now_ms=NOW_MS), engine=engine)],
    )
    yield (
        "recover",
        [values(one) for one in plan_recovery(found(), RecoverOptions(walk="all", now_ms=NOW_MS), engine=engine)],
    )


@pytest.fixture(scope="module")
def expected(logs: Path) -> dict[str, list[Any]]:
    return dict(answers(logs, Serial()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut and group kilobytes as if they were hundreds of mebibytes."""
    monkeypatch.setattr(engine_module, "_TASK_BYTES", 1000)
    monkeypatch.setattr(engine_module, "_SMALL_BYTES", 300_000)
    monkeypatch.setattr(engine_module, "LEAST_BYTES", 300_000)
    monkeypatch.setattr(SparkEngine, "sizes", TaskSizes(10_000, 20_000))


def compare(logs: Path, expected: dict[str, list[Any]], engine: Engine, *, commands: int = 3) -> None:
    for command, found in islice(answers(logs, engine), commands):
        assert found == expected[command], command


# ---- a local master that tries again


def test_a_worker_that_is_killed_is_tried_again(tmp_path: Path) -> None:
    """Before the cluster has its session: a process has one at a time."""
    again = tmp_path / "again"
    tasks = [f"echo {number} >> {tmp_path}/done" for number in range(6)]
    tasks[3] += f"; test -e {again} || {{ touch {again}; kill -9 $PPID; }}"
    with spark_engine("local[2,4]") as engine:
        assert list(engine.map(os.system, tasks)) == [(task, 0) for task in tasks]
        assert again.exists()
        tasks[3] = "kill -9 $PPID"
        with pytest.raises(KdumpError, match=r"a Python process on the worker \S+ was killed"):
            list(engine.map(os.system, tasks))
        # The session lives on.
        assert [status for _, status in engine.map(os.system, tasks[:2])] == [0, 0]


# ---- a standalone cluster of two workers


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def on_cluster(two_workers: SparkCluster) -> Iterator[SparkEngine]:
    with spark_engine(two_workers.url, EXECUTOR_SETTINGS) as engine:
        yield engine


@pytest.mark.usefixtures("small")
def test_a_cluster_gives_the_same_answers(on_cluster: SparkEngine, logs: Path, expected: dict[str, list[Any]]) -> None:
    assert on_cluster.slots == 2
    compare(logs, expected, on_cluster)


def test_a_path_that_a_worker_does_not_have(on_cluster: SparkEngine, tmp_path: Path) -> None:
    for name in ("here", "there"):
        shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / name / "segments-0")
    found = list(discover([str(tmp_path)]))
    shutil.rmtree(tmp_path / "there")
    reports = list(verify_logs(iter(found), VerifyOptions(now_ms=NOW_MS), engine=on_cluster))
    errors = [[str(error) for error in report.errors] for report in reports]
    assert errors[0] == []
    assert errors[1]
    assert {re.sub(r"host \S+;", "host H;", error) for error in errors[1]} == {
        (
            f"{tmp_path}/there/segments-0: no such directory on the host H; every worker must be able to reach the"
            " same paths"
        )
    }


@pytest.mark.usefixtures("small")
def test_a_worker_and_its_executor_are_killed_in_the_middle(
    on_cluster: SparkEngine, two_workers: SparkCluster, tmp_path: Path
) -> None:
    """The last test with this cluster: one of its two workers is gone afterwards."""
    for number in range(12):
        copy = shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / f"segments-{number}")
        with contextlib.suppress(damage.NotApplicable, IndexError):
            damage_partition.apply("flip-payload", copy, random.Random(number))
    slow = VerifyOptions(now_ms=NOW_MS, io_limit=400_000)
    alone = [values(one) for one in verify_logs(discover([str(tmp_path)]), VerifyOptions(now_ms=NOW_MS))]
    began, killed = time.monotonic(), threading.Event()

    def kill() -> None:
        two_workers.kill_worker(1)
        killed.set()

    found = []
    for report in verify_logs(discover([str(tmp_path)]), slow, engine=on_cluster):
        if not found:
            kill()
        found.append(values(report))
    assert killed.is_set()
    assert two_workers.alive == [0]
    assert found == alone
    assert time.monotonic() - began < 120


# ---- Spark Connect


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.usefixtures("small", "on_cluster")
def test_connect_gives_the_same_answers(
    logs: Path, expected: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory, kdump: Command
) -> None:
    """In a process that has a session of the cluster, and one of the server that is not kdump's."""
    pytest.importorskip("grpc")
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        from pyspark.sql.connect.session import SparkSession

        before = SparkSession.builder.remote(url).create()
        with spark_engine(url) as engine:
            assert engine.slots == 2
            compare(logs, expected, engine, commands=2)
        assert SparkSession.getActiveSession() is before
        assert before.range(3).count() == 3
        before.stop()
        ran = kdump("verify", "--master", url, str(logs / "segments-0"), timeout=300)
        assert (ran.status, ran.problems) == (0, "")
        ran = kdump(
            "verify", "--master", url, "--spark-conf", "spark.executor.memory=1g", str(logs / "segments-0"), timeout=300
        )
        assert ran.status == 3
        assert ran.problems == (
            f"kdump: {url}: spark.executor.memory is a setting of the server, which cannot be changed from here\n"
        )


# ---- the command, with a driver of its own


def without_seconds(text: str) -> str:
    return re.sub(r'"seconds": ?[\d.]+', "", text)


@pytest.fixture(scope="module", autouse=True)
def with_spark() -> None:
    need_spark()


def test_the_command_prints_nothing_else(kdump: Command, logs: Path) -> None:
    """Four attempts for each task; a Python worker that is killed in its first attempt."""
    arguments = ("verify", "--format", "json", "-v", str(logs))
    alone = kdump(*arguments, "--jobs", "1")
    ran = kdump(*arguments, timeout=300, KDUMP_MASTER="local[2,4]")
    assert (ran.status, ran.problems) == (alone.status, alone.problems)
    assert without_seconds(ran.text) == without_seconds(alone.text)


def test_copies_are_compared_on_a_cluster(kdump: Command) -> None:
    disks = [str(FIXTURES / name) for name in ("leader", "follower")]
    compare = ("verify", "--compare", "--format", "json", *disks)
    alone, ran = kdump(*compare), kdump(*compare, "--master", "local[2]", timeout=300)
    assert (ran.status, without_seconds(ran.text)) == (alone.status, without_seconds(alone.text))


def test_another_build_on_the_worker_refuses(kdump: Command, tmp_path: Path) -> None:
    copy = tmp_path / "other" / "kdump"
    shutil.copytree(Path(package.__path__[0]), copy, ignore=shutil.ignore_patterns("*.c", "__pycache__"))
    with (copy / "kernel" / "scan.pyx").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    path = str(FIXTURES / "codecs" / "none-0")
    ran = kdump(
        "verify",
        "--master",
        "local[1]",
        "--spark-conf",
        f"spark.executorEnv.PYTHONPATH={copy.parent}",
        "--spark-conf",
        "spark.executorEnv.PYTHONDONTWRITEBYTECODE=1",
        path,
        timeout=300,
    )
    assert ran.status == 3
    host = os.uname().nodename
    assert ran.problems == (
        f"kdump: the worker {host} has kdump {package.__version__} build {digest_of(str(copy))}, and the driver has"
        f" kdump {build_name()}; both must be the same build\n"
    )


@pytest.mark.parametrize(
    ("setting", "sentence"),
    of_the_day(
        [
            (
                "spark.executor.extraJavaOptions=-XX:ReservedCodeCacheSize=1k",
                r"no Spark executor stays alive: .* of the worker 127\.0\.0\.1: .* is now EXITED \(Command exited with",
            ),
            ("spark.executorEnv.JAVA_HOME=/nojava", r"Spark has ended .* of the worker 127\.0\.0\.1: .* is now FAILED"),
            ("spark.pyspark.python=/no/python", r"the worker 127\.0\.0\.1 cannot start the Python /no/python"),
            ("spark.executor.memory=1m", r"Spark failed: .*Executor memory 1048576 must be at least"),
        ],
        2,
    ),
)
def test_executors_that_cannot_work(
    kdump: Command, tmp_path_factory: pytest.TempPathFactory, setting: str, sentence: str
) -> None:
    path = str(FIXTURES / "codecs" / "none-0")
    name, _, value = setting.partition("=")
    settings = EXECUTOR_SETTINGS | {name: value}
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1) as found:
        conf = [word for each in settings.items() for word in ("--spark-conf", "=".join(each))]
        ran = kdump("verify", "--master", found.url, *conf, path, timeout=300)
    assert ran.status == 3
    assert re.fullmatch(rf"kdump: {sentence}.*\n", ran.problems), ran.problems


def test_a_worker_without_kdump(kdump: Command, tmp_path: Path) -> None:
    """The Python of the workers is one that has nothing installed."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {Path(sys.base_prefix) / "bin" / "python3"} -S "$@"\n')
    program.chmod(0o755)
    ran = kdump(
        "verify", "--master", "local[1]", "--spark-conf", f"spark.pyspark.python={program}",
        str(FIXTURES / "codecs" / "none-0"), timeout=300,
    )  # fmt: skip
    assert ran.status == 3
    assert re.match(r"kdump: the Python of (a|the) worker .*has no kdump", ran.problems), ran.problems


def test_without_java(kdump: Command, tmp_path: Path) -> None:
    path = str(FIXTURES / "codecs" / "none-0")
    for name in ("bash", "dirname", "env", "sh", "readlink", "sed", "uname", "python3"):
        if (found := shutil.which(name)) is not None:
            (tmp_path / name).symlink_to(found)
    ran = kdump("verify", "--master", "local[1]", path, timeout=300, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.status == 3
    assert ran.problems == (
        "kdump: Spark needs Java 17 or later, and no java is on the PATH; install one, or set JAVA_HOME\n"
    )


def test_an_interrupt_ends_everything(kdump: Command, tmp_path: Path) -> None:
    for number in range(40):
        shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "logs" / f"segments-{number}")
    with kdump.started("verify", "--master", "local[2]", "--io-limit", "20k", str(tmp_path / "logs")) as process:
        seen = set[str]()

        def is_at_work() -> bool:
            """The two slots have begun four logs, so that two are done."""
            seen.update(*map(open_logs, descendants(process.pid)))
            return len(seen) >= 4

        until(is_at_work, 120)
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGINT)
        out, problems = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.startswith(b"interrupted at byte ")
    assert problems == b""
    until(lambda: not any(map(is_alive, below)))


def test_a_driver_that_is_killed_is_one_sentence(kdump: Command, tmp_path: Path) -> None:
    """The Java process that kdump has started."""
    for number in range(8):
        shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "logs" / f"segments-{number}")
    logs = str(tmp_path / "logs")

    def is_at_work() -> bool:
        return any(path.startswith(logs) for one in descendants(process.pid) for path in open_logs(one))

    with kdump.started("verify", "--master", "local[2]", "--io-limit", "20k", logs) as process:
        until(is_at_work, 120)
        below = descendants(process.pid)
        for one in below:
            if Path(f"/proc/{one}/comm").read_text() == "java\n":
                os.kill(one, signal.SIGKILL)
        _, problems = process.communicate(timeout=60)
    assert process.returncode == 3
    sentence = rb"kdump: the driver of Spark, a Java process of this machine, has ended, [^\n]* \(Spark's log: \S+\)\n"
    assert re.fullmatch(sentence, problems), problems
    until(lambda: not any(map(is_alive, below)))
